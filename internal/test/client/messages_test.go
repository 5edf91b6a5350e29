package client_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/auth"
	"github.com/go-vercel/sandbox/internal/test/canned"
	"github.com/go-vercel/sandbox/internal/test/needs"
	"github.com/go-vercel/sandbox/internal/test/testkit"
	"github.com/go-vercel/sandbox/sandboxtest"
)

// TestMessages: the error of a mistake names the object that it is about, and says
// what to do instead.
func TestMessages(t *testing.T) {
	t.Parallel()
	srv := sandboxtest.New(t, nil)
	c := testkit.Client(t, srv, sandbox.ClientOptions{})
	sb, err := c.Create(t.Context(), testkit.Lasting(&sandbox.CreateOptions{Name: "box", Ports: []int{3000, 4000}}))
	require.NoError(t, err)
	session := sb.CurrentSession()
	create := func(o sandbox.CreateOptions) func() error {
		return func() error { _, err := c.Create(t.Context(), &o); return err }
	}
	run := func(on interface {
		RunCommand(context.Context, string, []string, *sandbox.CommandOptions) (*sandbox.CommandResult, error)
	}, name string) func() error {
		return func() error { _, err := on.RunCommand(t.Context(), name, nil, nil); return err }
	}
	for name, mistake := range map[string]struct {
		make func() error
		want []string
	}{
		"a shell line":  {run(sb, "echo hi | wc"), []string{`run command "box"`, session.ID(), `no shell reads it`, `"sh"`}},
		"no program":    {run(sb, "nodejs99"), []string{`"box"`, "nodejs99"}},
		"a port":        {func() error { _, err := sb.URL(8080); return err }, []string{"8080", "exposed: 3000, 4000", "CreateOptions.Ports"}},
		"a git address": {create(sandbox.CreateOptions{Source: sandbox.GitSource{URL: "git@github.com:a/b.git"}}), []string{"https", "ssh"}},
		"an image":      {create(sandbox.CreateOptions{Image: "node:24"}), []string{`"node:24"`, "vercel/sandbox/universal"}},
		"a snapshot":    {create(sandbox.CreateOptions{Source: sandbox.SnapshotSource{SnapshotID: "snap_nope"}}), []string{`"snap_nope"`}},
		"a base address": {func() error {
			_, err := sandbox.NewClient(&sandbox.ClientOptions{BaseURL: "vercel.com/api"})
			return err
		}, []string{`"vercel.com/api"`, "https://vercel.com/api"}},
		"a token": {func() error {
			other, err := sandbox.NewClient(&sandbox.ClientOptions{BaseURL: srv.URL, Credentials: auth.Static(auth.Credentials{Token: "s3cret", TeamID: "team_mine", ProjectID: "prj_mine"})})
			require.NoError(t, err)
			defer other.CloseIdleConnections()
			_, err = other.Get(t.Context(), "box", nil)
			return err
		}, []string{"ClientOptions", "team_mine", "prj_mine"}},
		"input": {func() error {
			cmd, err := sb.StartCommand(t.Context(), "sleep", []string{"1000"}, nil)
			require.NoError(t, err)
			w := cmd.Stdin(t.Context())
			_, err = io.WriteString(w, "x")
			if closeErr := w.Close(); err == nil {
				err = closeErr
			}
			return err
		}, []string{"AttachStdin"}},
		"a command that isn't there": {func() error { _, err := sb.GetCommand(t.Context(), "cnope"); return err }, []string{`"box"`, session.ID(), "cnope"}},
		"no context":                 {func() error { _, err := sb.RunCommand(nil, "true", nil, nil); return err }, []string{"ctx: is nil"}}, //nolint:staticcheck // that is the mistake
		"an answer that is lost": {func() error {
			ctx, cancel := context.WithCancel(t.Context())
			defer srv.Inject(sandboxtest.Fault{Match: func(req *http.Request) bool {
				if req.Method == http.MethodGet {
					cancel() // it is looked up
				}
				return strings.Contains(req.URL.Path, "/cmd")
			}, Status: 502})()
			_, err := sb.RunCommand(ctx, "true", nil, nil)
			return err
		}, []string{"context canceled; ", "status 502", "unknown"}},
		"a context that has ended": {func() error {
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			return session.Refresh(ctx)
		}, []string{`"box"`, session.ID()}},
	} {
		err := mistake.make()
		if !assert.Error(t, err, name) {
			continue
		}
		for _, want := range mistake.want {
			assert.ErrorContains(t, err, want, name)
		}
		assert.NotContains(t, err.Error(), "s3cret")
		assert.NotContains(t, err.Error(), "\n", name)
		assert.NotContains(t, err.Error(), `\n`, name)
	}

	text, err := json.Marshal(sb)
	require.NoError(t, err)
	_, err = sb.Stop(t.Context(), nil)
	require.NoError(t, err)
	err = run(session, "true")()
	require.ErrorIs(t, err, sandbox.ErrStopped)
	assert.ErrorContains(t, err, `"box"`)
	assert.ErrorContains(t, err, session.ID())
	var decoded sandbox.Sandbox
	require.NoError(t, json.Unmarshal(text, &decoded))
	fresh := testkit.Client(t, srv, sandbox.ClientOptions{})
	fresh.Bind(&decoded)
	_, err = decoded.CurrentSession().RunCommand(t.Context(), "true", nil, nil)
	assert.ErrorContains(t, err, `"box"`, "of a handle from JSON")

	require.NoError(t, sb.Resume(t.Context()))
	require.NoError(t, sb.Delete(t.Context(), nil))
	err = run(sb, "true")()
	require.ErrorIs(t, err, sandbox.ErrDeleted)
	assert.ErrorContains(t, err, `sandbox: "box"`)

	lost, err := c.Create(t.Context(), &sandbox.CreateOptions{Name: "lost"})
	require.NoError(t, err)
	require.True(t, srv.Crash("lost"))
	err = run(lost, "true")()
	require.ErrorIs(t, err, sandbox.ErrSnapshotNotFound)
	for _, want := range []string{`"lost"`, "never saved", "GetOrCreate", "Delete"} {
		assert.ErrorContains(t, err, want)
	}
}

// TestFilesGoneOf: what is said to do when files are gone is possible.
func TestFilesGoneOf(t *testing.T) {
	t.Parallel()
	c := canned.API(func(*http.Request) (*http.Response, error) {
		return canned.JSON(410, `{"error":{"code":"snapshot_not_found","message":"Snapshot not found."}}`), nil
	}).Client(t)
	_, err := c.Get(t.Context(), "box", nil)
	require.ErrorIs(t, err, sandbox.ErrSnapshotNotFound)
	assert.ErrorContains(t, err, "GetOrCreate makes it anew")
	_, err = c.Fork(t.Context(), "box", nil)
	require.ErrorIs(t, err, sandbox.ErrSnapshotNotFound)
	assert.ErrorContains(t, err, "never saved")
	assert.NotContains(t, err.Error(), "GetOrCreate", "that is about the fork")
	_, err = c.Create(t.Context(), &sandbox.CreateOptions{Source: sandbox.SnapshotSource{SnapshotID: "snap_x"}})
	require.ErrorIs(t, err, sandbox.ErrSnapshotNotFound)
	assert.NotContains(t, err.Error(), "never saved")
}

// TestAsUserUnknown: a command of a user that does not exist is an error, and one
// of a user that does may end with code 1.
func TestAsUserUnknown(t *testing.T) {
	t.Parallel()
	_, sb := testkit.Start(t, nil)
	done, err := sb.RunCommand(t.Context(), "sudo", []string{"-n", "true"}, nil)
	if err != nil || done.ExitCode != 0 {
		needs.Other(t, "the sandbox's user may not use sudo here")
	}
	ghost, err := sb.AsUser("ghost")
	require.NoError(t, err)
	_, err = ghost.RunCommand(t.Context(), "true", nil, nil)
	var unknown *sandbox.ExitError
	require.ErrorAs(t, err, &unknown)
	assert.ErrorContains(t, err, `"ghost"`)
	root, err := sb.AsUser("root")
	require.NoError(t, err)
	done, err = root.RunCommand(t.Context(), "false", nil, nil)
	require.NoError(t, err)
	assert.Equal(t, 1, done.ExitCode)
}
