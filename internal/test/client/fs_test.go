package client_test

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/internal/test/needs"
	"github.com/go-vercel/sandbox/internal/test/testkit"
	"github.com/go-vercel/sandbox/sandboxtest"
)

// TestOperationsMakeOneRequest: each method makes one request. Reading a file to its end needs a second
// one for the file's size, which the response does not contain.
func TestOperationsMakeOneRequest(t *testing.T) {
	t.Parallel()
	needs.GNU(t)
	srv, sb := start(t, nil)
	ctx := t.Context()
	f := sb.FS()
	require.NoError(t, f.WriteFile(ctx, "d/file", []byte("x"), 0o644))
	require.NoError(t, f.Symlink(ctx, "file", "d/link"))
	drop := func(_ any, err error) error { return err }
	for _, step := range []struct {
		name string
		do   func() error
	}{
		{"Open", func() error {
			r, err := f.Open(ctx, "d/file", &sandbox.OpenOptions{NoSizeCheck: true})
			if err != nil {
				return err
			}
			return errors.Join(drop(io.ReadAll(r)), r.Close())
		}},
		{"WriteFile", func() error { return f.WriteFile(ctx, "d/file", []byte("y"), 0o600) }},
		{"AppendFile", func() error { return f.AppendFile(ctx, "d/file", []byte("y")) }},
		{"Mkdir", func() error { return f.Mkdir(ctx, "d/a", 0o755) }},
		{"MkdirAll", func() error { return f.MkdirAll(ctx, "d/b/c", 0o755) }},
		{"MkdirTemp", func() error { return drop(f.MkdirTemp(ctx, "", "x")) }},
		{"ReadDir", func() error {
			list, err := f.ReadDir(ctx, "d")
			for _, d := range list {
				if _, ierr := d.Info(); ierr != nil {
					return ierr
				}
			}
			return err
		}},
		{"Stat", func() error { return drop(f.Stat(ctx, "d/link")) }},
		{"Lstat", func() error { return drop(f.Lstat(ctx, "d/link")) }},
		{"Readlink", func() error { return drop(f.Readlink(ctx, "d/link")) }},
		{"RealPath", func() error { return drop(f.RealPath(ctx, "d/link")) }},
		{"Exists", func() error { return drop(f.Exists(ctx, "d/link")) }},
		{"CopyFile", func() error { return f.CopyFile(ctx, "d/file", "d/copy") }},
		{"Rename", func() error { return f.Rename(ctx, "d/copy", "d/moved") }},
		{"Chmod", func() error { return f.Chmod(ctx, "d/moved", 0o600) }},
		{"ChmodSymbolic", func() error { return f.ChmodSymbolic(ctx, "d/moved", "u+x") }},
		{"Truncate", func() error { return f.Truncate(ctx, "d/moved", 10) }},
		{"Symlink", func() error { return f.Symlink(ctx, "x", "d/link2") }},
		{"Remove", func() error { return f.Remove(ctx, "d/link2") }},
		{"Remove", func() error { return f.Remove(ctx, "d/a") }},
		{"Remove", func() error { return f.Remove(ctx, "d/moved") }},
		{"RemoveAll", func() error { return f.RemoveAll(ctx, "d/none") }},
		{"RemoveAll", func() error { return f.RemoveAll(ctx, "d") }},
	} {
		before := len(srv.Requests())
		require.NoError(t, step.do(), step.name)
		assert.Len(t, srv.Requests(), before+1, step.name)
	}
	require.NoError(t, f.WriteFile(ctx, "file", []byte("x"), 0o644))
	before := len(srv.Requests())
	require.NoError(t, drop(f.ReadFile(ctx, "file")))
	assert.Len(t, srv.Requests(), before+2)
}

// The client's helper programs print English messages, whatever the sandbox's language is.
func TestErrorsInOtherLanguages(t *testing.T) {
	t.Parallel()
	srv, sb := start(t, &sandbox.CreateOptions{Env: sandbox.Env{"LC_ALL": "de_DE.UTF-8", "LANGUAGE": "de"}})
	ctx := t.Context()
	asked := 0
	german := func(english, other string) sandboxtest.CommandHandler {
		return func(_ context.Context, inv *sandboxtest.Invocation) int {
			asked++
			message := other
			if inv.Env["LC_ALL"] == "C" {
				message = english
			}
			_, _ = io.WriteString(inv.Stderr, message+"\n")
			return 1
		}
	}
	srv.HandleCommand("rm", german("rm: cannot remove 'x': Directory not empty", "rm: Entfernen von 'x' nicht möglich: Das Verzeichnis ist nicht leer"))
	srv.HandleCommand("find", german("find: 'x': Permission denied", "find: 'x': Keine Berechtigung"))
	assert.ErrorIs(t, sb.FS().Remove(ctx, "x"), syscall.ENOTEMPTY)
	assert.Equal(t, 1, asked)
	_, err := sb.FS().ReadDir(ctx, "x")
	assert.ErrorIs(t, err, fs.ErrPermission)
	assert.Equal(t, 2, asked)

	// The error contains an unknown message unchanged.
	srv.HandleCommand("mv", german("mv: the disk is on fire", "mv: es brennt"))
	err = sb.FS().Rename(ctx, "a", "b")
	assert.ErrorContains(t, err, "the disk is on fire")
	fe, ok := errors.AsType[*sandbox.FSError](err)
	require.True(t, ok)
	assert.Equal(t, "mv: the disk is on fire", strings.TrimSpace(fe.Message))
	_, known := errors.AsType[syscall.Errno](err)
	assert.False(t, known)

	// The client does not retry if a program is missing.
	asked = 0
	srv.HandleCommand("cp", func(_ context.Context, inv *sandboxtest.Invocation) int {
		asked++
		_, _ = io.WriteString(inv.Stderr, "cp: command not found\n")
		return 127
	})
	assert.ErrorContains(t, sb.FS().CopyFile(ctx, "a", "b"), "command not found")
	assert.Equal(t, 1, asked)
}

// TestInvalidProgramOutput: if a helper program prints invalid output, short or long, the call fails.
func TestInvalidProgramOutput(t *testing.T) {
	t.Parallel()
	srv, sb := start(t, nil)
	ctx := t.Context()
	outputs := []string{"", "f 644 1 0 0 0 0 0 1 1 1 1 ../evil\x00", "\x00", "nonsense", strings.Repeat("x", 1<<20)}
	if !needs.Slow() {
		outputs = outputs[:2] // each makes the client kill a command, which is slow
	}
	for _, out := range outputs {
		resp := func(_ context.Context, inv *sandboxtest.Invocation) int {
			_, _ = io.WriteString(inv.Stdout, out)
			return 0
		}
		srv.HandleCommand("stat", resp)
		srv.HandleCommand("find", resp)
		_, err := sb.FS().Stat(ctx, "x")
		assert.Error(t, err, "%.20q", out)
		list, err := sb.FS().ReadDir(ctx, "x")
		if out != "" {
			assert.Error(t, err, "%.20q", out)
		}
		assert.Empty(t, list)
	}
}

// The FileSystem of a Sandbox resumes it. The FileSystem of a Session does not.
func TestFilesResume(t *testing.T) {
	t.Parallel()
	sb := share(t, nil)
	ctx := t.Context()
	require.NoError(t, sb.FS().WriteFile(ctx, "a", []byte("kept"), 0o644))
	old := sb.CurrentSession()
	_, err := sb.Stop(ctx, nil)
	require.NoError(t, err)

	_, err = old.FS().Stat(ctx, "a")
	assert.ErrorIs(t, err, sandbox.ErrStopped)
	_, err = old.FS().Open(ctx, "a", nil)
	assert.ErrorIs(t, err, sandbox.ErrStopped)
	assert.ErrorIs(t, old.FS().WriteFiles(ctx, []sandbox.File{{Path: "b"}}, nil), sandbox.ErrStopped)

	data, err := sb.FS().ReadFile(ctx, "a")
	require.NoError(t, err)
	assert.Equal(t, "kept", string(data))
	assert.NotEqual(t, old.ID(), sb.CurrentSession().ID())
}

func TestPermissionErrors(t *testing.T) {
	t.Parallel()
	sb := shareIsolated(t, nil)
	testkit.NeedBox(t, sb)
	ctx := t.Context()
	f := sb.FS()
	for name, err := range map[string]error{
		"Mkdir":      f.Mkdir(ctx, "/etc/x", 0o755),
		"Remove":     f.Remove(ctx, "/etc/passwd"),
		"Rename":     f.Rename(ctx, "/etc/passwd", "/etc/p"),
		"Chmod":      f.Chmod(ctx, "/etc/passwd", 0),
		"Chown":      f.Chown(ctx, "/etc/passwd", 1, 1),
		"Truncate":   f.Truncate(ctx, "/etc/passwd", 0),
		"AppendFile": f.AppendFile(ctx, "/etc/passwd", []byte("x")),
		"Symlink":    f.Symlink(ctx, "x", "/etc/x"),
		"WriteFile":  f.WriteFile(ctx, "/etc/x", nil, 0o644),
	} {
		if errors.Is(err, syscall.EROFS) {
			needs.Missing(t, "a root file system of the sandbox that can be written: %v", err)
		}
		assert.ErrorIs(t, err, fs.ErrPermission, name)
	}
}

// TestChownOwnerOrGroup calls Chown with only an owner, only a group, both and neither. It
// passes the current ones, because only root may change them.
func TestChownOwnerOrGroup(t *testing.T) {
	t.Parallel()
	needs.GNU(t)
	sb := share(t, nil)
	ctx, f := t.Context(), sb.FS()
	require.NoError(t, f.WriteFile(ctx, "file", []byte("x"), 0o644))
	require.NoError(t, f.Symlink(ctx, "file", "link"))
	info, err := f.Stat(ctx, "file")
	require.NoError(t, err)
	st := info.Sys().(*sandbox.FileStat)
	for _, to := range [][2]int{{st.UID, -1}, {-1, st.GID}, {st.UID, st.GID}, {-1, -1}} {
		assert.NoError(t, f.Chown(ctx, "link", to[0], to[1]), "%v", to)
	}
	after, err := f.Stat(ctx, "file")
	require.NoError(t, err)
	assert.Equal(t, []any{st.UID, st.GID}, []any{after.Sys().(*sandbox.FileStat).UID, after.Sys().(*sandbox.FileStat).GID})
}
