package client_test

import (
	"context"
	"io/fs"
	"os/exec"
	"strings"
	"testing"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/internal/test/testkit"
	"github.com/go-vercel/sandbox/sandboxtest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestLookPath: LookPath returns what exec.LookPath would return in the sandbox, with the
// sandbox's PATH, and makes at most one request.
func TestLookPath(t *testing.T) {
	t.Parallel()
	srv, sb := testkit.Start(t, nil)
	ctx := t.Context()
	own, err := srv.Client().Create(ctx, &sandbox.CreateOptions{Env: sandbox.Env{"PATH": "/nowhere:/tmp/own:/tmp/own/a b:/usr/bin:/bin"}})
	require.NoError(t, err)
	require.NoError(t, own.WriteFiles(ctx, []sandbox.File{
		{Path: "/tmp/own/tool", Content: []byte("#!/bin/sh\n"), Mode: new(fs.FileMode(0o755))},
		{Path: "/tmp/own/data", Content: []byte("x")},
		{Path: "/tmp/own/a b/to*ol", Content: []byte("#!/bin/sh\n"), Mode: new(fs.FileMode(0o755))},
	}, nil))
	for name, want := range map[string]string{
		"tool": "/tmp/own/tool", "to*ol": "/tmp/own/a b/to*ol", "/tmp/own/tool": "/tmp/own/tool", "data": "", "/tmp/own/data": "", "/tmp/own": "",
		"no-such": "", "/no/such": "", "": "",
	} {
		before := len(srv.Requests())
		got, err := own.LookPath(ctx, name)
		if srv.Mode() == sandboxtest.Folder && want != "" {
			got = got[max(0, strings.Index(got, "/tmp/own")):] // in folder mode, the path begins with a folder of this machine
		}
		assert.Equal(t, want, got, name)
		assert.LessOrEqual(t, len(srv.Requests())-before, 1, name)
		if want != "" {
			assert.NoError(t, err, name)
			continue
		}
		assert.IsType(t, &exec.Error{}, err, name)
		if name == "data" || name == "/tmp/own/data" || name == "/tmp/own" {
			assert.ErrorIs(t, err, fs.ErrPermission, name)
		} else {
			assert.ErrorIs(t, err, exec.ErrNotFound, name)
		}
	}
	_, err = sb.LookPath(ctx, "to\x00ol")
	assert.ErrorIs(t, err, sandbox.ErrInvalid)
	_, err = sb.Stop(ctx, nil)
	require.NoError(t, err)
	got, err := sb.LookPath(ctx, "sh")
	require.NoError(t, err)
	assert.Regexp(t, "/sh$", got)
	if srv.Mode() == sandboxtest.Folder {
		return // all commands run as the same user
	}
	testkit.NeedRoot(t, sb)
	user, err := sb.CreateUser(ctx, "alice")
	require.NoError(t, err)
	got, err = user.LookPath(ctx, "sh")
	require.NoError(t, err)
	assert.Regexp(t, "/sh$", got)
}

// TestCommandDone: Done closes its channel when Wait would return. Wait then needs no
// further request.
func TestCommandDone(t *testing.T) {
	t.Parallel()
	srv, sb := start(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	cmd, err := sb.StartCommand(ctx, "sh", []string{"-c", "read x; exit 3"}, &sandbox.StartOptions{AttachStdin: true})
	require.NoError(t, err)
	given := cmd.Done(ctx)
	done := cmd.Done(t.Context())
	cancel()
	<-given
	select {
	case <-done:
		t.Error("Done closed its channel before the command had ended")
	default:
	}
	in := cmd.Stdin(t.Context())
	_, err = in.Write([]byte("x\n"))
	require.NoError(t, err)
	require.NoError(t, in.Close())
	<-done
	before := len(srv.Requests())
	res, err := cmd.Wait(t.Context())
	require.NoError(t, err)
	assert.Equal(t, 3, res.ExitCode)
	assert.Len(t, srv.Requests(), before, "Wait knows the result already")
}
