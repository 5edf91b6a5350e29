package client_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/auth"
	"github.com/go-vercel/sandbox/internal/test/canned"
	"github.com/go-vercel/sandbox/internal/test/needs"
	"github.com/go-vercel/sandbox/internal/test/testkit"
	"github.com/go-vercel/sandbox/sandboxtest"
)

// TestMessages: an error about a caller's mistake names the value and says what to do.
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
	parse := func(policy string) func() error {
		return func() error { _, err := sandbox.ParseNetworkPolicy([]byte(policy)); return err }
	}
	require.NoError(t, sb.FS().WriteFile(t.Context(), "dos.sh", []byte("#!/bin/sh\r\necho\r\n"), 0o755))
	run := func(on interface {
		RunCommand(context.Context, string, []string, *sandbox.CommandOptions) (*sandbox.CommandResult, error)
	}, name string) func() error {
		return func() error { _, err := on.RunCommand(t.Context(), name, nil, nil); return err }
	}
	for name, mistake := range map[string]struct {
		make func() error
		want []string
	}{
		"a shell line":       {run(sb, "echo hi | wc"), []string{`run command "box"`, session.ID(), `no shell reads it`, `"sh"`}},
		"no program":         {run(sb, "nodejs99"), []string{`"box"`, "nodejs99"}},
		"a port":             {func() error { _, err := sb.URL(8080); return err }, []string{"8080", "exposed: 3000, 4000", "CreateOptions.Ports"}},
		"a git address":      {create(sandbox.CreateOptions{Source: sandbox.GitSource{URL: "git@github.com:a/b.git"}}), []string{"https", "ssh"}},
		"an image":           {create(sandbox.CreateOptions{Image: "node:24"}), []string{`"node:24"`, "vercel/sandbox/universal"}},
		"a snapshot":         {create(sandbox.CreateOptions{Source: sandbox.SnapshotSource{SnapshotID: "snap_nope"}}), []string{`"snap_nope"`}},
		"a taken name":       {create(sandbox.CreateOptions{Name: "box"}), []string{"'box'", "GetOrCreate"}},
		"a taken fork":       {func() error { _, err := c.Fork(t.Context(), "box", &sandbox.ForkOptions{Name: "box"}); return err }, []string{"ForkOptions.Name"}},
		"a missing snapshot": {func() error { _, err := c.GetSnapshot(t.Context(), "snap_none"); return err }, []string{`get snapshot "snap_none"`}},
		"a subnet": {create(sandbox.CreateOptions{NetworkPolicy: &sandbox.NetworkPolicy{AllowSubnets: []string{"10.0.0.1"}}}),
			[]string{`"10.0.0.1"`, "NetworkPolicy.AllowSubnets", "need a mask"}},
		"a policy's field":                {parse(`{"alow":["x"]}`), []string{`network policy: unknown field "alow"`}},
		"a policy in the form of the API": {parse(`{"mode":"custom","allowedDomains":["x"]}`), []string{"the API's own form", "allow and subnets"}},
		"a used-up plan": {func() error {
			defer srv.Inject(sandboxtest.Fault{Operation: sandboxtest.CreateSandbox, Status: 402, Times: 1})()
			return create(sandbox.CreateOptions{})()
		}, []string{"plan's usage is exhausted"}},
		"no emulator": {func() error {
			other, err := sandbox.NewClient(&sandbox.ClientOptions{BaseURL: refusingPort(t), Credentials: testkit.Credentials(srv), MaxRetries: -1})
			require.NoError(t, err)
			_, err = other.Get(t.Context(), "box", nil)
			return err
		}, []string{"connection refused", "is the emulator running?"}},
		"Windows line endings":           {run(sb, "./dos.sh"), []string{"./dos.sh", "CRLF"}},
		"Windows line endings, by a Cmd": {func() error { return sb.CommandContext(t.Context(), "./dos.sh").Run() }, []string{"./dos.sh", "CRLF"}},
		"a full disk": {func() error {
			cmd := sb.CommandContext(t.Context(), "cat", "/dev/zero")
			cmd.Stdout = writerFunc(func([]byte) (int, error) { return 0, syscall.ENOSPC })
			return cmd.Run()
		}, []string{"exit status 141", syscall.ENOSPC.Error()}},
		"a base address": {func() error {
			_, err := sandbox.NewClient(&sandbox.ClientOptions{BaseURL: "vercel.com/api"})
			return err
		}, []string{`"vercel.com/api"`, "https://vercel.com/api"}},
		"a reader that is shorter than its size": {func() error {
			return sb.WriteFiles(t.Context(), []sandbox.File{{Path: "sub/short.txt", Reader: overstated{strings.NewReader("short")}}}, nil)
		}, []string{`"sub/short.txt" ended after 5 of the 4096 bytes`}},
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
		"a missing command": {func() error { _, err := sb.GetCommand(t.Context(), "cnope"); return err }, []string{`"box"`, session.ID(), "cnope"}},
		"no context":        {func() error { _, err := sb.RunCommand(nil, "true", nil, nil); return err }, []string{"ctx: is nil"}}, //nolint:staticcheck // the nil context is the mistake
		"a lost response": {func() error {
			ctx, cancel := context.WithCancel(t.Context())
			defer srv.Inject(sandboxtest.Fault{Match: func(req *http.Request) bool {
				if req.Method == http.MethodGet {
					cancel() // the client looks the command up
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
		if strings.HasPrefix(name, "Windows") && srv.Mode() == sandboxtest.Namespace && !srv.Enforces().Users {
			continue // in this mode, unshare starts the program, and the message is unshare's
		}
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

	done, err := sb.RunCommand(t.Context(), "sleep", []string{"1000"}, &sandbox.CommandOptions{Timeout: 100 * time.Millisecond})
	require.NoError(t, err)
	assert.True(t, done.TimedOut)
	assert.Contains(t, fmt.Sprint(done), "killed at the end of its Timeout")
	killed, err := sb.RunCommand(t.Context(), "sh", []string{"-c", "kill -9 $$"}, &sandbox.CommandOptions{Timeout: time.Hour})
	require.NoError(t, err)
	assert.Equal(t, 137, killed.ExitCode)
	assert.False(t, killed.TimedOut)
	assert.Contains(t, fmt.Sprint(killed), "(sh): exit code 137")

	begun := make(chan struct{})
	out := writerFunc(func(p []byte) (int, error) { close(begun); return len(p), nil })
	stopped := make(chan error, 1)
	go func() {
		_, err := sb.RunCommand(t.Context(), "sh", []string{"-c", "echo; sleep 1000"}, &sandbox.CommandOptions{Stdout: out})
		stopped <- err
	}()
	<-begun

	text, err := json.Marshal(sb)
	require.NoError(t, err)
	_, err = sb.Stop(t.Context(), nil)
	require.NoError(t, err)
	err = <-stopped
	require.Error(t, err)
	assert.Regexp(t, `^sandbox: command output of \S+ in "box": its session is stopped or stopping, and the command ends with it: `, err.Error())
	assert.Equal(t, 1, strings.Count(err.Error(), "sandbox: "))
	err = run(session, "true")()
	require.ErrorIs(t, err, sandbox.ErrStopped)
	assert.ErrorContains(t, err, `"box"`)
	assert.ErrorContains(t, err, session.ID())
	var decoded sandbox.Sandbox
	require.NoError(t, json.Unmarshal(text, &decoded))
	fresh := testkit.Client(t, srv, sandbox.ClientOptions{})
	fresh.Bind(&decoded)
	_, err = decoded.CurrentSession().RunCommand(t.Context(), "true", nil, nil)
	assert.ErrorContains(t, err, `"box"`, "the error of a handle from JSON")

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

// overstated is a reader that claims to have 4096 bytes.
type overstated struct{ *strings.Reader }

func (o overstated) Seek(offset int64, whence int) (int64, error) {
	if whence == io.SeekEnd {
		return 4096, nil
	}
	return o.Reader.Seek(offset, whence)
}

// refusingPort returns the address of a port of this machine that refuses connections.
func refusingPort(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	return "http://" + l.Addr().String()
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// TestSnapshotGone: if the snapshot of a sandbox is gone, the error has advice that fits
// the call.
func TestSnapshotGone(t *testing.T) {
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
	assert.NotContains(t, err.Error(), "GetOrCreate", "GetOrCreate would not help a fork")
	_, err = c.Create(t.Context(), &sandbox.CreateOptions{Source: sandbox.SnapshotSource{SnapshotID: "snap_x"}})
	require.ErrorIs(t, err, sandbox.ErrSnapshotNotFound)
	assert.NotContains(t, err.Error(), "never saved")
}

// TestAsUserUnknown: running a command as an unknown user fails. sudo exits with code 1
// then, but a command of an existing user may also exit with this code.
func TestAsUserUnknown(t *testing.T) {
	t.Parallel()
	sb := shareIsolated(t, nil)
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
