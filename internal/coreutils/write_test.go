package coreutils

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/internal/test/needs"
)

// local runs the programs of this machine in a directory.
func local(t *testing.T, dir string) Runner {
	t.Helper()
	needs.Programs(t, "dd")
	return func(ctx context.Context, c Call) (Result, error) {
		cmd := exec.CommandContext(ctx, c.Name, c.Args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "LC_ALL=C")
		var stdout, stderr bytes.Buffer
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		if c.Stdout != nil {
			cmd.Stdout = c.Stdout
		}
		err := cmd.Run()
		if cmd.ProcessState == nil {
			return Result{}, err
		}
		return Result{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}, nil
	}
}

func piece(t *testing.T, data string) Piece {
	t.Helper()
	name := filepath.Join(t.TempDir(), "piece")
	require.NoError(t, os.WriteFile(name, []byte(data), 0o600))
	sum := sha256.Sum256([]byte(data))
	return Piece{name, int64(len(data)), hex.EncodeToString(sum[:])}
}

func content(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(name)
	require.NoError(t, err)
	return string(data)
}

func TestAppend(t *testing.T) {
	dir := t.TempDir()
	run := local(t, dir)
	for i, name := range []string{"log", "-a b\n/c\n"} {
		made, err := run.Append(t.Context(), name, []byte("one\n"))
		require.NoError(t, err)
		assert.Equal(t, i > 0, made, name)
		_, err = run.Append(t.Context(), name, nil)
		require.NoError(t, err)
		made, err = run.AppendPiece(t.Context(), name, piece(t, "two\x00\n"))
		require.NoError(t, err)
		assert.False(t, made)
		assert.Equal(t, "one\ntwo\x00\n", content(t, filepath.Join(dir, name)))
	}
	_, err := run.Append(t.Context(), "log/x", []byte("x"))
	assert.ErrorIs(t, errnoIn(err), syscall.ENOTDIR)
	_, err = run.Append(t.Context(), "-a b\n", []byte("x"))
	assert.ErrorIs(t, errnoIn(err), syscall.EISDIR)

	p := piece(t, "data")
	p.Sum = strings.Repeat("0", 64)
	_, err = run.AppendPiece(t.Context(), "log", p)
	assert.ErrorIs(t, err, ErrLost, "the piece is not what was sent")
	assert.NoFileExists(t, p.Path)
	_, err = run.AppendPiece(t.Context(), "log", p)
	assert.ErrorIs(t, err, ErrLost)
	assert.Equal(t, "one\ntwo\x00\n", content(t, filepath.Join(dir, "log")))
}

func errnoIn(err error) error {
	if e, ok := err.(*Error); ok {
		return e.Errno
	}
	return err
}

// Each append is a single write, even in a directory that has to be created.
func TestAppendIsOneWrite(t *testing.T) {
	dir := t.TempDir()
	run := local(t, dir)
	const writers, each = 3, 2
	var group sync.WaitGroup
	want := map[string]bool{}
	for w := range writers {
		text := strings.Repeat(string(rune('a'+w)), 20_000) + "\n"
		// Writing this much in blocks takes long enough to be interleaved with other
		// writes.
		long := strings.Repeat(string(rune('A'+w)), 4<<20) + "\n"
		want[text], want[long] = true, true
		for i := range each {
			group.Go(func() {
				var err error
				if i%2 == 0 {
					_, err = run.Append(context.Background(), "new/dir/log", []byte(text))
				} else {
					_, err = run.AppendPiece(context.Background(), "new/dir/log", piece(t, long))
				}
				assert.NoError(t, err)
			})
		}
	}
	group.Wait()
	lines := strings.SplitAfter(content(t, filepath.Join(dir, "new/dir/log")), "\n")
	assert.Len(t, lines, writers*each+1)
	for _, line := range lines[:len(lines)-1] {
		assert.True(t, want[line], "%.10q…, %d bytes", line, len(line))
	}
}

// TestJoinTwice: Join can be repeated while the first run, whose outcome is unknown, still
// runs.
func TestJoinTwice(t *testing.T) {
	needs.GNU(t)
	rounds := 100
	if !needs.Slow() {
		rounds = 5
	}
	for range rounds {
		run, p := local(t, t.TempDir()), piece(t, strings.Repeat("A", 1<<20))
		to := &Placement{Name: "f", Mode: 0o600}
		var group sync.WaitGroup
		group.Go(func() { _, _ = run.Join(context.Background(), ".part", 0, p, to, false) })
		_, err := run.Join(t.Context(), ".part", 0, p, to, true)
		assert.NoError(t, err)
		group.Wait()
	}
}

func TestJoin(t *testing.T) {
	needs.GNU(t)
	dir := t.TempDir()
	run := local(t, dir)
	join := func(at int64, p Piece) error {
		_, err := run.Join(t.Context(), "new/.part", at, p, nil, false)
		return err
	}
	first, second, third := piece(t, strings.Repeat("A", 300_000)), piece(t, "BB"), piece(t, "C")
	made, err := run.Join(t.Context(), "new/.part", 0, first, nil, false)
	require.NoError(t, err)
	assert.True(t, made)
	require.NoError(t, join(first.Size, second))
	require.NoError(t, join(0, first), "a repetition changes nothing")
	require.NoError(t, join(first.Size, second), "a repetition changes nothing")
	assert.ErrorIs(t, join(first.Size+second.Size+5, third), ErrLost, "the file has no such length")
	bad := third
	bad.Sum = first.Sum
	assert.ErrorIs(t, join(first.Size+second.Size, bad), ErrLost, "the piece has another checksum")
	assert.ErrorIs(t, join(5, piece(t, "x")), nil)

	to := &Placement{Name: "new/f", Mode: 0o640}
	_, err = run.Join(t.Context(), "new/.part", first.Size, piece(t, "B"), to, false)
	assert.ErrorIs(t, err, ErrLost, "the joined file has another length")
	place := func(again bool) error {
		_, err := run.Join(t.Context(), "new/.part", first.Size+second.Size, third, to, again)
		return err
	}
	third = piece(t, "C")
	require.NoError(t, place(false))
	require.NoError(t, place(true), "a repetition changes nothing")
	assert.ErrorIs(t, place(false), ErrLost)
	assert.Equal(t, "AAAAAx"+strings.Repeat("A", 299_994)+"BBC", content(t, filepath.Join(dir, "new/f")))
	info, err := os.Stat(filepath.Join(dir, "new/f"))
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o640), info.Mode())

	_, err = run.Join(t.Context(), "gone/.part", 5, piece(t, "x"), nil, false)
	assert.ErrorIs(t, err, ErrLost, "a new machine does not have the start of the file")
	none, empty := piece(t, ""), &Placement{Name: "empty", Mode: 0o600}
	_, err = run.Join(t.Context(), ".part", 0, none, empty, false)
	require.NoError(t, err)
	assert.Empty(t, content(t, filepath.Join(dir, "empty")))

	// A late run changes no file that was written or removed since, and leaves none.
	for _, again := range []bool{false, true} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "empty"), []byte("later"), 0o600))
		_, err = run.Join(t.Context(), ".part", 0, none, empty, again)
		assert.ErrorIs(t, err, ErrLost)
		assert.Equal(t, "later", content(t, filepath.Join(dir, "empty")))
		require.NoError(t, os.Remove(filepath.Join(dir, "empty")))
		for _, p := range []Piece{none, first} {
			_, err = run.Join(t.Context(), ".part", 0, p, empty, again)
			assert.ErrorIs(t, err, ErrLost)
		}
		assert.NoFileExists(t, filepath.Join(dir, "empty"))
		assert.NoFileExists(t, filepath.Join(dir, ".part"))
	}
}

// Links are followed, and a file that is not regular is not changed.
func TestJoinFollowsLinks(t *testing.T) {
	needs.GNU(t)
	dir := t.TempDir()
	run := local(t, dir)
	require.NoError(t, os.Mkdir(filepath.Join(dir, "d\n"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "d\n", "real\n"), []byte("old"), 0o600))
	require.NoError(t, os.Symlink("d\n/real\n", filepath.Join(dir, "link")))
	require.NoError(t, os.Symlink("real\n", filepath.Join(dir, "d\n", "beside")))
	require.NoError(t, os.Symlink("d\n/new", filepath.Join(dir, "dangling")))
	require.NoError(t, os.Symlink("loop", filepath.Join(dir, "loop")))
	require.NoError(t, os.Symlink("d\n", filepath.Join(dir, "todir")))
	require.NoError(t, exec.Command("mkfifo", filepath.Join(dir, "fifo")).Run())
	place := func(name string) error {
		t.Helper()
		part := Dir(name) + "/.part"
		to := &Placement{Name: name, Mode: 0o644}
		_, err := run.Join(t.Context(), part, 0, piece(t, name), to, false)
		_ = os.Remove(filepath.Join(dir, part))
		return err
	}
	require.NoError(t, place("link"))
	assert.Equal(t, "link", content(t, filepath.Join(dir, "d\n", "real\n")))
	require.NoError(t, place("d\n/beside"))
	assert.Equal(t, "d\n/beside", content(t, filepath.Join(dir, "d\n", "real\n")))
	require.NoError(t, place("dangling"))
	assert.Equal(t, "dangling", content(t, filepath.Join(dir, "d\n", "new")))
	require.NoError(t, place("todir/../through"))
	assert.Equal(t, "todir/../through", content(t, filepath.Join(dir, "through")))
	assert.ErrorIs(t, errnoIn(place("loop")), syscall.ELOOP)
	assert.ErrorIs(t, errnoIn(place("todir")), syscall.EISDIR)
	assert.ErrorContains(t, place("fifo"), "not a regular file")
	left, err := filepath.Glob(filepath.Join(dir, "d\n", ".part*"))
	require.NoError(t, err)
	assert.Empty(t, left)
}

func TestTruncateAndSameFile(t *testing.T) {
	needs.GNU(t)
	dir := t.TempDir()
	run := local(t, dir)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "f"), []byte("12345"), 0o644))
	require.NoError(t, run.Truncate(t.Context(), "f", 2))
	assert.Equal(t, "12", content(t, filepath.Join(dir, "f")))
	require.NoError(t, exec.Command("mkfifo", filepath.Join(dir, "fifo")).Run())
	assert.ErrorIs(t, errnoIn(run.Truncate(t.Context(), "fifo", 0)), syscall.EINVAL)
	assert.ErrorIs(t, errnoIn(run.Truncate(t.Context(), "missing", 0)), syscall.ENOENT)
	assert.ErrorIs(t, errnoIn(run.Truncate(t.Context(), ".", 0)), syscall.EISDIR)

	require.NoError(t, os.Link(filepath.Join(dir, "f"), filepath.Join(dir, "twin")))
	require.NoError(t, os.Symlink("f", filepath.Join(dir, "link")))
	for name, want := range map[string]bool{"twin": true, "f": true, "link": false, "fifo": false} {
		same, err := run.SameFile(t.Context(), "f", name)
		require.NoError(t, err)
		assert.Equal(t, want, same, name)
	}
	_, err := run.SameFile(t.Context(), "f", "missing")
	assert.Error(t, err)
	assert.Equal(t, "/", Dir("/x"))
	assert.Equal(t, fmt.Sprint(".", "l/.."), fmt.Sprint(Dir("x"), Dir("l/../x")))
}
