package client_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/agent"
	"github.com/go-vercel/sandbox/internal/clean"
	"github.com/go-vercel/sandbox/internal/test/needs"
	"github.com/go-vercel/sandbox/internal/test/testkit"
	"github.com/go-vercel/sandbox/internal/test/testkit/hostile"
	"github.com/go-vercel/sandbox/sandboxtest"
	"github.com/go-vercel/sandbox/tunnel"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestEnvironmentOfOwnPrograms: many operations run helper programs in the sandbox. Their
// results do not depend on the sandbox's environment, or on which shell its sh is.
func TestEnvironmentOfOwnPrograms(t *testing.T) {
	t.Parallel()
	needs.Long(t, "it runs every operation that needs a helper program, in many environments")
	needs.GNU(t)
	want, used := ownPrograms(t, nil)
	// If a program is new here, add an operation below that depends on its output or effect.
	programs := []string{"bash", "chmod", "cp", "env", "find", "ln", "mkdir", "mktemp", "mv", "readlink", "rm", "sh", "stat"}
	ofUsers := []string{"sudo", "id", "useradd", "chgrp"} // some sandboxes have none of these
	assert.Equal(t, programs, slices.DeleteFunc(used, func(name string) bool { return slices.Contains(ofUsers, name) }))
	for _, row := range hostile.Rows(testkit.Seed(t), true) {
		got, _ := ownPrograms(t, &row)
		require.Len(t, got, len(want), row)
		for n := range want {
			assert.Equal(t, want[n], got[n], row)
		}
	}
}

// ownPrograms runs operations in a sandbox with the environment of a row. It returns their
// results and the names of the helper programs that they ran.
func ownPrograms(t *testing.T, row *hostile.Row) (results, programs []string) {
	create := &sandbox.CreateOptions{}
	if row != nil {
		create.Env = row.Env
	}
	srv, sb := testkit.Start(t, create)
	ctx, f := t.Context(), sb.FS()
	say := func(op string, err error, more ...any) {
		if err != nil {
			more = append(more, fmt.Sprintf("%T", err))
			for _, errno := range []error{fs.ErrNotExist, fs.ErrExist, fs.ErrPermission, syscall.ELOOP, syscall.ENOTEMPTY, syscall.ENOTDIR} {
				if errors.Is(err, errno) {
					more = append(more, errno)
				}
			}
		}
		results = append(results, op+": "+fmt.Sprint(more...))
	}
	if srv.Mode() != sandboxtest.Folder { // in folder mode, /tmp is the machine's
		require.NoError(t, f.WriteFile(ctx, hostile.Script, []byte(hostile.Text), 0o644))
		if row != nil && row.Bash {
			require.NoError(t, f.MkdirAll(ctx, hostile.Shells, 0o755))
			require.NoError(t, f.Symlink(ctx, "/bin/bash", hostile.Shells+"/sh"))
		}
	}
	theirs := 0 // commands that are not helper programs
	tools := agent.New(sb, nil)
	say("MkdirAll", f.MkdirAll(ctx, "d/node_modules/x", 0o755))
	say("MkdirAll of a mode", f.MkdirAll(ctx, "d/.git/private/x", 0o700))
	say("Mkdir", f.Mkdir(ctx, "d/private", 0o700))
	say("WriteFile", f.WriteFile(ctx, "d/.git/config", []byte("config\n"), 0o644))
	say("WriteFile", f.WriteFile(ctx, "d/node_modules/x/y", []byte("module\n"), 0o755))
	w, err := f.Create(ctx, "d/made", nil)
	require.NoError(t, err)
	_, err = w.Write([]byte("made\n"))
	require.NoError(t, err)
	say("Create", w.Close())
	say("Symlink", f.Symlink(ctx, "made", "d/link"))
	w, err = f.Create(ctx, "d/link", nil)
	require.NoError(t, err)
	_, err = w.Write([]byte("through a link\n"))
	require.NoError(t, err)
	say("Create of a link", w.Close())
	say("AppendFile", f.AppendFile(ctx, "d/made", []byte("more\n")))
	say("AppendFile of much", f.AppendFile(ctx, "d/much", []byte(strings.Repeat("0123456789abcdef", 20_000))))
	say("Truncate", f.Truncate(ctx, "d/much", 100_000))
	say("Chmod", f.Chmod(ctx, "d/much", 0o640))
	say("ChmodSymbolic", f.ChmodSymbolic(ctx, "d/much", "u+x"))
	say("CopyFile", f.CopyFile(ctx, "d/made", "d/copy"))
	say("Rename", f.Rename(ctx, "d/copy", "d/hard"))
	target, err := f.Readlink(ctx, "d/link")
	say("Readlink", err, target)
	real, err := f.RealPath(ctx, "d/../d/link")
	here, hereErr := f.RealPath(ctx, sb.Cwd()) // in folder mode, a folder of the machine
	require.NoError(t, hereErr)
	say("RealPath", err, strings.TrimPrefix(real, here))
	tmp, err := f.MkdirTemp(ctx, "d", "tmp-*")
	say("MkdirTemp", err, strings.HasPrefix(tmp, "d/tmp-"))
	say("Remove", f.Remove(ctx, tmp))
	say("Remove of what is not empty", f.Remove(ctx, "d"))
	say("Rename of nothing", f.Rename(ctx, "d/none", "d/x"))
	say("Symlink", f.Symlink(ctx, "loop/x", "d/loop"))
	_, err = f.RealPath(ctx, "d/loop")
	say("RealPath of a loop", err)
	w, err = f.Create(ctx, "d/loop", nil)
	require.NoError(t, err)
	say("Create of a loop", w.Close())
	say("Remove", f.Remove(ctx, "d/loop"))
	for _, name := range []string{"d/made", "d/much", "d/link", "d/private", "none"} {
		info, err := f.Lstat(ctx, name)
		if err == nil {
			say("Lstat", nil, info.Name(), info.Size(), info.Mode())
		} else {
			say("Lstat", err)
		}
	}
	list, err := f.ReadDir(ctx, "d")
	say("ReadDir", err)
	for _, e := range list {
		say("entry", nil, e)
	}
	say("WalkDir", f.WalkDir(ctx, "d", func(p string, d fs.DirEntry, err error) error {
		say("walked", err, p)
		return nil
	}))
	for _, name := range []string{"d/made", "d/hard"} {
		data, err := f.ReadFile(ctx, name)
		say("ReadFile", err, string(data))
	}
	local := t.TempDir()
	say("DownloadDir", f.DownloadDir(ctx, "d", local, nil))
	require.NoError(t, filepath.WalkDir(local, func(p string, d fs.DirEntry, _ error) error {
		info, err := d.Info()
		require.NoError(t, err)
		say("downloaded", nil, strings.TrimPrefix(p, local), info.Mode(), info.Mode().IsRegular() && info.Size() > 0)
		return nil
	}))
	info, err := os.Stat(filepath.Join(local, "much"))
	require.NoError(t, err)
	say("of today", nil, time.Since(info.ModTime()) < 24*time.Hour)
	say("DownloadDir of nothing", f.DownloadDir(ctx, "none", local, nil))
	for _, c := range []struct {
		tool string
		args string
	}{
		{"grep", `{"pattern": "MODULE", "path": "."}`}, {"grep", `{"pattern": "module|más", "path": "d"}`},
		{"glob", `{"pattern": "d/**/y"}`}, {"list_files", `{"path": "d"}`}, {"read_file", `{"path": "d/hard"}`},
		{"edit_file", `{"path": "d/hard", "old_string": "more", "new_string": "less"}`}, {"read_file", `{"path": "d/hard"}`},
		{"python", `{"code": "x = 40\nprint('ä')\nx + 2"}`}, {"python", `{"code": "import json\njson.dumps([x])"}`},
	} {
		if c.tool == "python" {
			if _, err := exec.LookPath("python3"); err != nil {
				continue
			}
			theirs = 1 // the interpreter runs with the sandbox's environment, but ignores it
		}
		result, err := tools.Call(ctx, c.tool, json.RawMessage(c.args))
		say("tool "+c.tool, err, result.Text)
	}
	require.NoError(t, tools.Close())
	say("RemoveAll", f.RemoveAll(ctx, "d"))
	_, err = sb.EnsureCommand(ctx, "sleeper", "sleep", []string{"600"}, nil)
	say("EnsureCommand", err)
	again, err := sb.EnsureCommand(ctx, "sleeper", "sleep", []string{"600"}, nil)
	say("EnsureCommand", err)
	require.NoError(t, again.Kill(ctx))
	theirs++
	user, err := sb.CreateUser(ctx, "somebody")
	say("CreateUser", err)
	if err == nil {
		say("WriteFile of a user", user.FS().WriteFile(ctx, "own/file", []byte("text"), 0o640))
		info, err := user.FS().Lstat(ctx, "own/file")
		require.NoError(t, err)
		data, err := user.FS().ReadFile(ctx, "own/file")
		say("ReadFile of a user", err, string(data), info.Mode())
		say("MkdirAll of a user", user.FS().MkdirAll(ctx, "a/b", 0o700))
		say("Remove of a user", user.FS().Remove(ctx, "a/none"))
	}
	if _, err := exec.LookPath("stty"); err == nil {
		_, err := tunnel.Dial(ctx, sb, 59999)
		say("Dial", err, errors.Is(err, tunnel.ErrRefused))
	}
	found := map[string]bool{}
	for _, r := range srv.Requests() {
		var body struct {
			Command string
			Args    []string
		}
		if strings.HasSuffix(r.Path, "/cmd") && json.Unmarshal(r.Body, &body) == nil && body.Command != "" {
			own, name, _ := clean.Of(body.Command, body.Args)
			if own == nil {
				theirs--
				continue
			}
			found[name] = true
		}
	}
	assert.Zero(t, theirs, "helper programs ran with the sandbox's environment")
	return results, slices.Sorted(maps.Keys(found))
}

// TestBusyBox: with BusyBox's programs, as in Alpine images, an operation works as with
// GNU's programs, or its error says what is missing.
func TestBusyBox(t *testing.T) {
	t.Parallel()
	needs.Programs(t, "busybox")
	busybox, err := exec.LookPath("busybox")
	require.NoError(t, err)
	sb := shareIsolated(t, &sandbox.CreateOptions{Env: sandbox.Env{"PATH": "/vercel/bb"}})
	ctx, f := t.Context(), sb.FS()
	program, err := os.ReadFile(busybox)
	require.NoError(t, err)
	require.NoError(t, f.WriteFile(ctx, "bb/busybox", program, 0o755))
	done, err := sb.RunCommand(ctx, "/vercel/bb/busybox", []string{"--install", "-s", "/vercel/bb"}, nil)
	require.NoError(t, err)
	require.Zero(t, done.ExitCode)
	require.NoError(t, f.WriteFile(ctx, "d/sub/x", []byte("text"), 0o640))
	create := func(size int) error {
		w, err := f.Create(ctx, "d/made", nil)
		require.NoError(t, err)
		_, err = w.Write(make([]byte, size))
		return errors.Join(err, w.Close())
	}
	for op, c := range map[string]struct {
		want error
		run  func() error
	}{
		"Stat": {nil, func() error {
			info, err := f.Stat(ctx, "d/sub/x")
			if err == nil {
				assert.EqualValues(t, 4, info.Size())
				assert.Equal(t, fs.FileMode(0o640), info.Mode())
				assert.False(t, info.ModTime().IsZero())
			}
			return err
		}},
		"Lstat of nothing": {fs.ErrNotExist, func() error { _, err := f.Lstat(ctx, "none"); return err }},
		"ReadFile": {nil, func() error {
			data, err := f.ReadFile(ctx, "d/sub/x")
			assert.Equal(t, "text", string(data))
			return err
		}},
		"RealPath": {nil, func() error {
			name, err := f.RealPath(ctx, "d/../d/sub")
			assert.True(t, strings.HasSuffix(name, "/d/sub"), name)
			return err
		}},
		"RealPath of nothing": {fs.ErrNotExist, func() error { _, err := f.RealPath(ctx, "none"); return err }},
		"AppendFile":          {nil, func() error { return f.AppendFile(ctx, "d/little", []byte("more\n")) }},
		"AppendFile of much":  {nil, func() error { return f.AppendFile(ctx, "d/much", make([]byte, 300_000)) }},
		"MkdirAll":            {nil, func() error { return f.MkdirAll(ctx, "d/a/b", 0o700) }},
		"Symlink":             {nil, func() error { return f.Symlink(ctx, "x", "d/link") }},
		"Chmod":               {nil, func() error { return f.Chmod(ctx, "d/sub", 0o755) }},
		"RemoveAll":           {nil, func() error { return f.RemoveAll(ctx, "d/other") }},
		"EnsureCommand": {nil, func() error {
			command, err := sb.EnsureCommand(ctx, "sleeper", "sleep", []string{"600"}, nil)
			if err == nil {
				err = command.Kill(ctx)
			}
			return err
		}},
		"Create":      {errors.ErrUnsupported, func() error { return create(1) }},
		"Truncate":    {errors.ErrUnsupported, func() error { return f.Truncate(ctx, "d/sub/x", 4) }},
		"ReadDir":     {errors.ErrUnsupported, func() error { _, err := f.ReadDir(ctx, "d"); return err }},
		"Remove":      {errors.ErrUnsupported, func() error { return f.Remove(ctx, "d/none") }},
		"DownloadDir": {exec.ErrNotFound, func() error { return f.DownloadDir(ctx, "d", t.TempDir(), nil) }}, // needs bash
	} {
		err := c.run()
		if c.want == nil {
			assert.NoError(t, err, op)
			continue
		}
		assert.ErrorIs(t, err, c.want, op)
		if errors.Is(c.want, errors.ErrUnsupported) {
			assert.ErrorContains(t, err, "a program of the sandbox is not GNU's: ", op)
		}
	}
}

// TestEnvWithoutSplit: if env has no -S, as in BusyBox, a shell is used instead.
func TestEnvWithoutSplit(t *testing.T) {
	t.Parallel()
	sb := shareIsolated(t, &sandbox.CreateOptions{Env: sandbox.Env{"PATH": "/vercel/bin:/usr/local/bin:/usr/bin:/bin", "POSIXLY_CORRECT": "1", "TAR_OPTIONS": "--no-such"}})
	ctx, f := t.Context(), sb.FS()
	require.NoError(t, f.WriteFile(ctx, "bin/env", []byte(`#!/bin/sh
[ "$2" != -S ] || { echo 'env: unrecognized option: S' >&2; exit 1; }
exec /usr/bin/env "$@"
`), 0o755))
	require.NoError(t, f.AppendFile(ctx, "d/x", []byte("text")))
	require.NoError(t, f.DownloadDir(ctx, "d", t.TempDir(), nil))
	_, err := f.Lstat(ctx, "none")
	assert.ErrorIs(t, err, fs.ErrNotExist)
}

// TestHelperProgramMissing: a missing helper program is not reported as a missing file.
func TestHelperProgramMissing(t *testing.T) {
	t.Parallel()
	sb := shareIsolated(t, &sandbox.CreateOptions{Env: sandbox.Env{"PATH": "/vercel/bin"}})
	ctx, f := t.Context(), sb.FS()
	require.NoError(t, f.WriteFile(ctx, "bin/env", []byte("#!/bin/sh\nexec /usr/bin/env \"$@\"\n"), 0o755))
	_, err := f.Lstat(ctx, "bin/env")
	assert.ErrorIs(t, err, exec.ErrNotFound)
	assert.NotErrorIs(t, err, fs.ErrNotExist)
}
