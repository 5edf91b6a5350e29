package client_test

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/internal/test/needs"
	"github.com/go-vercel/sandbox/internal/test/testkit"
)

// owners returns the owner, group and mode of each path, such as "alice:staff 644".
func owners(t *testing.T, sb *sandbox.Sandbox, paths ...string) []string {
	t.Helper()
	done, err := sb.RunCommand(t.Context(), "stat", append([]string{"-c", "%U:%G %a"}, paths...), &sandbox.CommandOptions{Sudo: true})
	require.NoError(t, err)
	out, err := done.Stdout(t.Context())
	require.NoError(t, err)
	list := strings.Split(strings.TrimSpace(out), "\n")
	require.Len(t, list, len(paths))
	return list
}

func TestUsers(t *testing.T) {
	t.Parallel()
	sb := shareIsolated(t, nil)
	testkit.NeedUsers(t, sb)
	ctx := t.Context()
	alice, err := sb.CreateUser(ctx, "alice")
	require.NoError(t, err)
	assert.Equal(t, "alice", alice.Username())
	assert.Equal(t, "/home/alice", alice.HomeDir())

	_, err = sb.CreateUser(ctx, "alice")
	assert.ErrorIs(t, err, sandbox.ErrConflict)
	assert.ErrorContains(t, err, `"alice"`)

	done, err := alice.RunCommand(ctx, "sh", []string{"-c", `printf '%s %s %s' "$(id -un)" "$PWD" "$GREETING"`}, &sandbox.CommandOptions{Env: map[string]string{"GREETING": "hi there"}})
	require.NoError(t, err)
	out, err := done.Stdout(ctx)
	require.NoError(t, err)
	assert.Equal(t, "alice /home/alice hi there", out)
	done, err = alice.RunCommand(ctx, "id", []string{"-un"}, &sandbox.CommandOptions{Sudo: true})
	require.NoError(t, err)
	out, err = done.Stdout(ctx)
	require.NoError(t, err)
	assert.Equal(t, "root\n", out)
	cmd, err := alice.StartCommand(ctx, "pwd", nil, &sandbox.StartOptions{Cwd: "/tmp"})
	require.NoError(t, err)
	_, err = cmd.Wait(ctx)
	require.NoError(t, err)
	out, err = cmd.Stdout(ctx)
	require.NoError(t, err)
	assert.Equal(t, "/tmp\n", out)

	devs, err := sb.CreateGroup(ctx, "devs")
	require.NoError(t, err)
	assert.Equal(t, "/shared/devs", devs)
	_, err = sb.CreateGroup(ctx, "devs")
	exit, ok := errors.AsType[*sandbox.ExitError](err)
	require.True(t, ok, "%v", err)
	assert.ErrorContains(t, err, `create group "devs"`)
	assert.Contains(t, string(exit.Stderr), "already exists")
	require.NoError(t, alice.AddToGroup(ctx, "devs"))
	require.NoError(t, alice.FS().WriteFile(ctx, "/shared/devs/x", []byte("x"), 0o644))
	require.NoError(t, alice.RemoveFromGroup(ctx, "devs"))
	nobody, err := sb.AsUser("nobody-like-that")
	require.NoError(t, err)
	require.Error(t, nobody.AddToGroup(ctx, "devs"))

	for _, bad := range []string{"", "Alice", "-x", "a b", "a;b", "1a", strings.Repeat("a", 33), "ä"} {
		_, err := sb.AsUser(bad)
		assert.ErrorIs(t, err, sandbox.ErrInvalid, bad)
		_, err = sb.CreateUser(ctx, bad)
		assert.ErrorIs(t, err, sandbox.ErrInvalid, bad)
		_, err = sb.CreateGroup(ctx, bad)
		assert.ErrorIs(t, err, sandbox.ErrInvalid, bad)
		assert.ErrorIs(t, alice.AddToGroup(ctx, bad), sandbox.ErrInvalid)
		assert.ErrorIs(t, alice.RemoveFromGroup(ctx, bad), sandbox.ErrInvalid)
	}
}

func TestUserFiles(t *testing.T) {
	t.Parallel()
	needs.Long(t, "each step runs sudo; TestUserPathsOutside covers some")
	srv, sb := testkit.Start(t, nil)
	testkit.NeedUsers(t, sb)
	ctx := t.Context()
	alice, err := sb.CreateUser(ctx, "alice")
	require.NoError(t, err)
	f := alice.FS()

	secret := "\x00\xffsecret" + strings.Repeat("0123456789", 50_000)
	before := len(srv.Requests())
	require.NoError(t, alice.FS().WriteFiles(ctx, []sandbox.File{
		{Path: "data/deep/secret", Content: []byte(secret), Mode: new(fs.FileMode(0o600))}, {Path: "top"},
	}, nil))
	assert.Len(t, srv.Requests(), before+2)
	r, err := alice.FS().Open(ctx, "deep/secret", &sandbox.OpenOptions{Cwd: "/home/alice/data"})
	require.NoError(t, err)
	data, err := io.ReadAll(r)
	require.NoError(t, err)
	require.NoError(t, r.Close())
	assert.Equal(t, secret, string(data))
	_, err = alice.FS().Open(ctx, "none", nil)
	assert.ErrorIs(t, err, fs.ErrNotExist)
	_, err = alice.FS().Open(ctx, "data", nil)
	assert.ErrorIs(t, err, syscall.EISDIR)
	empty, err := f.ReadFile(ctx, "top")
	require.NoError(t, err)
	assert.Empty(t, empty)
	r, err = alice.FS().Open(ctx, "data/deep/secret", nil)
	require.NoError(t, err)
	require.NoError(t, r.Close(), "closing before the end")

	// The whole FileSystem works in the home directory.
	require.NoError(t, f.Mkdir(ctx, "made/", 0o777))
	require.NoError(t, f.Mkdir(ctx, "private", 0o700))
	require.NoError(t, f.AppendFile(ctx, "made/log", []byte(strings.Repeat("two", 50_000))))
	w, err := f.Create(ctx, "new/deep/big", nil)
	require.NoError(t, err)
	_, err = w.Write(make([]byte, 1000))
	require.NoError(t, err)
	require.NoError(t, w.Close())
	require.NoError(t, f.WriteFile(ctx, "made/small", []byte("x"), 0o644))
	names, err := fs.ReadDir(f.IOFS(ctx, "made"), ".")
	require.NoError(t, err)
	assert.Len(t, names, 2)
	if needs.Slow() {
		require.NoError(t, fstest.TestFS(f.IOFS(ctx, "made"), "log", "small"))
	}

	local := t.TempDir()
	require.NoError(t, alice.FS().DownloadFile(ctx, "data/deep/secret", filepath.Join(local, "secret"), nil))
	data, err = os.ReadFile(filepath.Join(local, "secret"))
	require.NoError(t, err)
	assert.Equal(t, secret, string(data))
	require.NoError(t, alice.FS().DownloadDir(ctx, "data", filepath.Join(local, "data"), nil))

	require.NoError(t, os.Symlink("/etc/hostname", filepath.Join(local, "link")))
	require.NoError(t, alice.FS().UploadDir(ctx, local, "up", &sandbox.UploadOptions{OutsideLinks: true}))
	require.NoError(t, alice.FS().CopyFS(ctx, "copied", fstest.MapFS{"a/b": {Data: []byte("x")}}, nil))
	got := owners(t, sb, "/home/alice/data/deep/secret", "/home/alice/data/deep", "/home/alice/data", "/home/alice/private", "/home/alice/made/log",
		"/home/alice/new/deep/big", "/home/alice/up/link", "/etc/hostname", "/home/alice/up/data/deep/secret", "/home/alice/copied/a/b")
	for i, want := range []string{
		"^alice:alice 600$", "^alice:", "^alice:.* 770$", "^alice:alice 700$", "^alice:alice 644$",
		"^alice:alice 644$", "^alice:alice ", "^root:" /* what a link points to does not change */, "^alice:alice 600$", "^alice:alice 644$",
	} {
		assert.Regexp(t, want, got[i], i)
	}
}

// TestUserPathsOutside: a user's FileSystem can write outside of the home directory. The
// written file then belongs to the user, but the directories there keep their owners.
func TestUserPathsOutside(t *testing.T) {
	t.Parallel()
	srv, sb := testkit.Start(t, nil)
	testkit.NeedUsers(t, sb)
	ctx := t.Context()
	alice, err := sb.CreateUser(ctx, "alice")
	require.NoError(t, err)
	bob, err := sb.CreateUser(ctx, "bob")
	require.NoError(t, err)
	require.NoError(t, alice.FS().WriteFile(ctx, "secret", []byte("x"), 0o600))
	_, err = bob.FS().Open(ctx, "/home/alice/secret", nil)
	assert.ErrorIs(t, err, fs.ErrPermission)
	got, err := alice.FS().ReadFile(ctx, "secret")
	require.NoError(t, err)
	assert.Equal(t, "x", string(got))
	w, err := alice.FS().Create(ctx, "new/deep/file", nil)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	require.NoError(t, alice.FS().AppendFile(ctx, "other/deep/file", []byte("x")))
	made := owners(t, sb, "/home/alice/secret", "/home/alice/new/deep/file", "/home/alice/other/deep/file", "/home/alice/other/deep", "/home/alice/new/deep")
	assert.Equal(t, []string{"alice:alice 600", "alice:alice 644", "alice:alice 644"}, made[:3])
	assert.Regexp(t, "^alice:.* 770$", made[3])
	assert.Regexp(t, "^alice:.* 770$", made[4])
	before := owners(t, sb, "/home", bob.HomeDir(), alice.HomeDir(), "/tmp")

	const odd = "odd \"; touch /tmp/pwned; \"$(touch /tmp/pwned)'\n\x1e\n${1}\\*/-R"
	requests := len(srv.Requests())
	require.NoError(t, alice.FS().WriteFiles(ctx, []sandbox.File{
		{Path: "../bob/f", Content: []byte("x")}, {Path: "/tmp/dir/f", Content: []byte("x")}, {Path: "../../tmp/alice2/f", Content: []byte("x")}, {Path: "in/../../bob/g", Content: []byte("x")},
		{Path: odd, Content: []byte("x")}, {Path: "written/deep/file"},
	}, nil))
	require.NoError(t, alice.FS().Mkdir(ctx, "../bob/d", 0o777))
	assert.Len(t, srv.Requests(), requests+4, "two requests for the files and two for the directory")

	assert.Equal(t, before, owners(t, sb, "/home", bob.HomeDir(), alice.HomeDir(), "/tmp"))
	after := owners(t, sb, "/home/bob/f", "/tmp/dir/f", "/tmp/alice2/f", "/home/bob/g", "/home/bob/d", "/home/alice/"+odd, "/tmp/dir", "/home/alice/written/deep")
	assert.Regexp(t, "^alice:.* 770$", after[7])
	for _, owner := range after[:6] {
		assert.True(t, strings.HasPrefix(owner, "alice:"), "%q", after)
	}
	assert.False(t, strings.HasPrefix(after[6], "alice:"))
	_, err = sb.FS().Stat(ctx, "/tmp/pwned")
	require.ErrorIs(t, err, fs.ErrNotExist)

	for _, bad := range []string{"", ".", "..", "/", "/home/alice", "x/.."} {
		assert.ErrorIs(t, alice.FS().WriteFiles(ctx, []sandbox.File{{Path: bad}}, nil), sandbox.ErrInvalid, bad)
	}
}

// The files and parent directories that a user's FileSystem creates belong to the user.
// The file API, which runs as another user, can still write to these directories.
func TestUserMakesDirectories(t *testing.T) {
	t.Parallel()
	needs.Long(t, "each step runs sudo")
	sb := shareIsolated(t, nil)
	testkit.NeedUsers(t, sb)
	alice, err := sb.CreateUser(t.Context(), "alice")
	require.NoError(t, err)
	content := strings.Repeat("0123456789", 10_000) // too long to append with one request
	for dir, write := range map[string]func(name string) error{
		"created": func(name string) error {
			w, err := alice.FS().Create(t.Context(), name, nil)
			if err != nil {
				return err
			}
			_, err = io.WriteString(w, content)
			return errors.Join(err, w.Close())
		},
		"appended": func(name string) error { return alice.FS().AppendFile(t.Context(), name, []byte(content)) },
		"short":    func(name string) error { return alice.FS().AppendFile(t.Context(), name, []byte("x")) },
	} {
		require.NoError(t, write(dir+"/deep/f"), dir)
		got := owners(t, sb, "/home/alice/"+dir+"/deep/f", "/home/alice/"+dir+"/deep")
		assert.Equal(t, "alice:alice 644", got[0])
		assert.Regexp(t, "^alice:.* 770$", got[1])
		data, err := alice.FS().ReadFile(t.Context(), dir+"/deep/f")
		require.NoError(t, err)
		assert.True(t, dir == "short" || string(data) == content, dir)
		require.NoError(t, alice.FS().WriteFiles(t.Context(), []sandbox.File{{Path: dir + "/deep/beside"}}, nil), dir)
	}
	done, err := sb.RunCommand(t.Context(), "find", []string{"/tmp", "-name", ".piece-*"}, nil)
	require.NoError(t, err)
	left, err := done.Stdout(t.Context())
	require.NoError(t, err)
	assert.Empty(t, left)
}

// The client combines the steps of an operation on users and groups into one command.
func TestUserCosts(t *testing.T) {
	t.Parallel()
	needs.Long(t, "each step runs sudo; TestUserFiles counts the most frequent requests")
	srv, sb := testkit.Start(t, nil)
	testkit.NeedUsers(t, sb)
	ctx := t.Context()
	var alice *sandbox.User
	write := func(path string) func() error {
		return func() error { return alice.FS().WriteFiles(ctx, []sandbox.File{{Path: path}}, nil) }
	}
	for _, c := range []struct {
		name string
		cost int
		run  func() error
	}{
		{"the first user", 1, func() (err error) { alice, err = sb.CreateUser(ctx, "alice"); return err }},
		{"group", 1, func() error { _, err := sb.CreateGroup(ctx, "devs"); return err }},
		{"the first file", 2, write("x")},
		{"another file", 2, write("x")},
		{"a file in new directories", 2, write("a/b/x")},
		{"directory", 2, func() error { return alice.FS().Mkdir(ctx, "d", 0o777) }},
	} {
		before := len(srv.Requests())
		require.NoError(t, c.run(), c.name)
		assert.Equal(t, c.cost, len(srv.Requests())-before, c.name)
	}
	// AsUser makes no request, so the client knows nothing about the user.
	again, err := sb.AsUser("alice")
	require.NoError(t, err)
	before := len(srv.Requests())
	require.NoError(t, again.FS().WriteFiles(ctx, []sandbox.File{{Path: "c/x"}}, nil))
	assert.Equal(t, 2, len(srv.Requests())-before)
	assert.Equal(t, []string{"alice:alice 644", "alice:alice 644"}, owners(t, sb, "/home/alice/a/b/x", "/home/alice/c/x"))
}

// If a step of the combined command fails, the error names this step, and later steps do
// not run.
func TestUserStepFails(t *testing.T) {
	t.Parallel()
	needs.Long(t, "each step runs sudo")
	sb := shareIsolated(t, nil)
	testkit.NeedUsers(t, sb)
	ctx := t.Context()
	done, err := sb.RunCommand(ctx, "sh", []string{"-c", "mkdir -p /shared && touch /shared/devs"}, &sandbox.CommandOptions{Sudo: true})
	require.NoError(t, err)
	require.Zero(t, done.ExitCode)
	_, err = sb.CreateGroup(ctx, "devs")
	e, ok := errors.AsType[*sandbox.ExitError](err)
	require.True(t, ok, "%v", err)
	assert.ErrorContains(t, err, "create shared directory /shared/devs: mkdir: ")
	assert.NotZero(t, e.ExitCode())
	assert.Equal(t, 1, strings.Count(string(e.Stderr), "\n"), "%s", e.Stderr)

	nobody, err := sb.AsUser("nobody-like-that")
	require.NoError(t, err)
	err = nobody.FS().WriteFiles(ctx, []sandbox.File{{Path: "/tmp/d/x"}}, nil)
	e, ok = errors.AsType[*sandbox.ExitError](err)
	require.True(t, ok, "%v", err)
	assert.ErrorContains(t, err, `resolve the primary group of "nobody-like-that": `)
	assert.Contains(t, string(e.Stderr), "no such user")
}

// If the sandbox's user may not use sudo, CreateUser fails after one command, and the error
// contains sudo's message.
func TestUsersWithoutSudo(t *testing.T) {
	t.Parallel()
	needs.Long(t, "it creates two sandboxes with users")
	_, plain := testkit.Start(t, nil)
	testkit.NeedUsers(t, plain)
	srv, sb := testkit.Start(t, &sandbox.CreateOptions{Env: sandbox.Env{"PATH": "/tmp/first:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}})
	ctx := t.Context()
	require.NoError(t, sb.WriteFiles(ctx, []sandbox.File{{Path: "/tmp/first/sudo", Content: []byte("#!/bin/sh\necho sudo: no >&2\nexit 1\n"), Mode: new(fs.FileMode(0o755))}}, nil))
	before := len(srv.Requests())
	_, err := sb.CreateUser(ctx, "alice")
	require.ErrorContains(t, err, "resolve the default sandbox user: sudo: no")
	assert.Equal(t, 1, len(srv.Requests())-before)
}

// Names with special characters are safe, because they are arguments of the script. If
// they don't fit into one command, the client runs several.
func TestUserPaths(t *testing.T) {
	t.Parallel()
	needs.Long(t, "each step runs sudo; TestUserPathsOutside uses an odd name")
	srv, sb := testkit.Start(t, nil)
	testkit.NeedUsers(t, sb)
	ctx := t.Context()
	alice, err := sb.CreateUser(ctx, "alice")
	require.NoError(t, err)
	var files []sandbox.File
	for _, name := range []string{"$(touch /tmp/pwned)", "`touch /tmp/pwned`", `"; touch /tmp/pwned; "`, "a b", "'", "new\nline", "\x1e\n", "${1}", `back\slash`, "*", "-R", "f\xff"} {
		files = append(files, sandbox.File{Path: "odd/" + name + "/file"})
	}
	require.NoError(t, alice.FS().WriteFiles(ctx, files, nil))
	owned := func(dir string) string {
		done, err := sb.RunCommand(ctx, "sh", []string{"-c", `find "$1" -type f -user alice -group alice -printf x`, "sh", dir}, &sandbox.CommandOptions{Sudo: true})
		require.NoError(t, err)
		out, err := done.Stdout(ctx)
		require.NoError(t, err)
		return out
	}
	assert.Len(t, owned("/home/alice/odd"), len(files))
	_, err = sb.FS().Stat(ctx, "/tmp/pwned")
	require.ErrorIs(t, err, fs.ErrNotExist)

	files = nil
	deep := strings.Repeat(strings.Repeat("d", 250)+"/", 14)
	for i := range 35 {
		files = append(files, sandbox.File{Path: fmt.Sprintf("many/%s%d", deep, i)})
	}
	before := len(srv.Requests())
	require.NoError(t, alice.FS().WriteFiles(ctx, files, nil))
	assert.Equal(t, 4, len(srv.Requests())-before, "the names have 120 KB")
	assert.Len(t, owned("/home/alice/many"), 35)
}
