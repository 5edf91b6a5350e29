package box

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/internal/test/needs"
	"github.com/go-vercel/sandbox/sandboxtest/internal/rootfs"
)

// newImage creates a directory with a shell and a few programs, and adds it to
// a host.
func newImage(t *testing.T, h *Host, programs ...string) (dir string, id ImageID) {
	t.Helper()
	dir = t.TempDir()
	rootfs.Make(t, dir, append(programs, "sh", "cat", "ls", "id")...)
	id, err := h.AddImage(t.Context(), dir)
	require.NoError(t, err)
	return dir, id
}

func TestImage(t *testing.T) {
	t.Parallel()
	h := openHost(t, Options{Mode: Namespace})
	dir, id := newImage(t, h)
	b := newBox(t, h, Config{Image: id, Account: ImageAccount})
	assert.Equal(t, "cat\nid\nls\nsh", sh(t, b, "ls /bin | (while read f; do test $f = sudo || echo $f; done)"))
	assert.Equal(t, "1000", sh(t, b, "id -u"))
	_, _, res := run(t, b, Spec{Path: "sudo", Args: []string{"-V"}})
	assert.Zero(t, res.ExitCode)
	sh(t, b, "echo kept > file; pwd")
	_, _, res = run(t, b, Spec{User: rootUser, Path: "sh", Args: []string{"-c", "echo mine > /bin/mine"}})
	assert.Zero(t, res.ExitCode)
	assert.NoFileExists(t, filepath.Join(dir, "bin/mine"))
	require.NoError(t, b.Stop(t.Context()))
	layer, _, err := b.Freeze(t.Context())
	require.NoError(t, err)
	// A layer stays on its image, whatever the configuration says.
	b = newBox(t, h, Config{Layer: layer, Account: ImageAccount})
	assert.Equal(t, "kept\nmine", sh(t, b, "cat file /bin/mine"))
	b = newBox(t, h, Config{})
	assert.NotEmpty(t, sh(t, b, "ls /usr/bin"))
	_, err = h.New(t.Context(), Config{Image: "nothing"})
	assert.ErrorIs(t, err, ErrNoImage)
}

// TestOrphansInAnImage: the first process of a box needs nothing from an image.
func TestOrphansInAnImage(t *testing.T) {
	t.Parallel()
	h := openHost(t, Options{Mode: Namespace})
	_, id := newImage(t, h)
	b := newBox(t, h, Config{Image: id, Account: ImageAccount})
	sh(t, b, "for i in 1 2 3 4 5; do (sh -c : &); done")
	var left string
	require.Eventually(t, func() bool {
		left = sh(t, b, `for f in /proc/[0-9]*/stat; do read -r pid name state rest < $f && test "$state" = Z && echo $pid; done 2>/dev/null; true`)
		return left == ""
	}, wait, tick, "%s", left)
	// It starts nothing while it waits.
	pid := func() int {
		n, err := strconv.Atoi(sh(t, b, "echo $$"))
		require.NoError(t, err)
		return n
	}
	first := pid()
	for range 20 {
		pid()
	}
	assert.Less(t, pid()-first, 60)
}

// TestFlattenedChainOfAnImage: files that were removed from the image stay
// removed.
func TestFlattenedChainOfAnImage(t *testing.T) {
	t.Parallel()
	h := openHost(t, Options{Mode: Namespace})
	dir, _ := newImage(t, h, "rm", "mkdir", "mv")
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "data/sub"), 0o777))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "data/one"), []byte("1"), 0o666))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "data/sub/two"), []byte("2"), 0o666))
	id, err := h.AddImage(t.Context(), dir)
	require.NoError(t, err)
	var layer LayerID
	for _, script := range []string{"rm /data/one", "rm -r /data/sub; mkdir /data/sub; echo 3 > /data/sub/three", "echo x > /vercel/x", "rm /vercel/x"} {
		b := newBox(t, h, Config{Image: id, Layer: layer, Account: ImageAccount})
		_, said, res := run(t, b, Spec{User: rootUser, Path: "sh", Args: []string{"-c", script}})
		require.Zero(t, res.ExitCode, "%s", said)
		require.NoError(t, b.Stop(t.Context()))
		layer, _, err = b.Freeze(t.Context())
		require.NoError(t, err)
	}
	h.store.longest = 1
	b := newBox(t, h, Config{Layer: layer, Account: ImageAccount})
	assert.Equal(t, "/data:\nsub\n\n/data/sub:\nthree", sh(t, b, "ls -R /data"))
	flat, chain, err := h.store.acquire(layer, true)
	require.NoError(t, err)
	defer h.store.release(flat)
	assert.Len(t, chain, 1)
	assert.Equal(t, id, h.store.imageOf(flat))
}

// TestStarterOfSeveralWords: as on a machine whose sudo needs its own loader.
func TestStarterOfSeveralWords(t *testing.T) {
	t.Parallel()
	program, ok := starter("/bin/echo", "one", "two  three", "four")
	if !ok {
		needs.Other(t, "not written for this machine")
	}
	name := writeProgram(t, program)
	out, err := exec.Command(name, "a", "b  c").Output()
	require.NoError(t, err)
	assert.Equal(t, "one two  three four a b  c\n", string(out))
}
