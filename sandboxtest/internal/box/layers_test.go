package box

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/internal/test/needs"
	"github.com/go-vercel/sandbox/sandboxtest/internal/box/backend"
)

// freeze runs a script in a new sandbox and makes a layer from it.
func freeze(t testing.TB, h *Host, from backend.LayerID, script string) backend.LayerID {
	t.Helper()
	b := newBox(t, h, backend.Config{Layer: from})
	sh(t, b, script)
	require.NoError(t, b.Stop())
	layer, _, err := b.Freeze()
	require.NoError(t, err)
	return layer
}

func TestLayersStack(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, h *Host) {
		first := freeze(t, h, "", "mkdir dir; echo 1 > dir/one; echo 2 > two; echo 3 > three; mkdir -p gone/deep; echo x > gone/deep/x")
		second := freeze(t, h, first, "mv dir moved; rm two; echo changed > three; rm -r gone; mkdir gone; echo y > gone/y; ln -s three link")
		third := freeze(t, h, second, "mv moved/one moved/uno; echo 4 > four")
		b := newBox(t, h, backend.Config{Layer: third})
		assert.Equal(t, ".\n./four\n./gone\n./gone/y\n./link\n./moved\n./moved/uno\n./three\n1\nchanged", sh(t, b, "find . | sort; cat moved/uno link"))
		old := newBox(t, h, backend.Config{Layer: first})
		assert.Equal(t, "1\n2\n3\nx", sh(t, old, "cat dir/one two three gone/deep/x"))
	})
}

func TestLongChain(t *testing.T) {
	t.Parallel()
	h := openHost(t, Options{Mode: Namespace})
	const length = 120
	var layer backend.LayerID
	for i := range length {
		// Create the layers without sandboxes: a hundred sandboxes would show nothing more.
		dir := filepath.Join(h.store.dir, "b", backend.NewID())
		require.NoError(t, os.MkdirAll(filepath.Join(dir, "vercel/sandbox"), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "vercel/sandbox", fmt.Sprint("f", i)), nil, 0o644))
		var err error
		layer, err = h.store.add(dir, layer)
		require.NoError(t, err)
	}
	b := newBox(t, h, backend.Config{Layer: layer})
	assert.Equal(t, fmt.Sprint(length), sh(t, b, "ls | wc -l"))
	assert.NotEmpty(t, h.store.layers[layer].Flat, "a long chain becomes one layer")
	if !needs.Slow() {
		return // chains that are too long for the kernel are flattened in the same way
	}
	for range h.backend.(backend.Flattener).MaxLayers() {
		dir := filepath.Join(h.store.dir, "b", backend.NewID())
		require.NoError(t, os.Mkdir(dir, 0o755))
		var err error
		layer, err = h.store.add(dir, layer)
		require.NoError(t, err)
	}
	b = newBox(t, h, backend.Config{Layer: layer})
	assert.Equal(t, fmt.Sprint(length), sh(t, b, "ls | wc -l"))
}

func TestRemovedLayersStayUnderOthers(t *testing.T) {
	t.Parallel()
	eachNewHost(t, func(t *testing.T, h *Host) {
		trees := func() int {
			list, err := os.ReadDir(filepath.Join(h.store.dir, "l"))
			require.NoError(t, err)
			return len(list)
		}
		first := freeze(t, h, "", "echo 1 > one")
		second := freeze(t, h, first, "echo 2 > two")
		b := newBox(t, h, backend.Config{Layer: second})
		require.NoError(t, h.RemoveLayer(first))
		require.ErrorIs(t, h.RemoveLayer(first), ErrNoLayer)
		require.NoError(t, h.RemoveLayer(second))
		_, err := h.New(t.Context(), backend.Config{Layer: second})
		require.ErrorIs(t, err, ErrNoLayer)
		assert.Equal(t, "1\n2", sh(t, b, "cat one two"))
		require.NoError(t, b.Remove())
		assert.Zero(t, trees())
	})
}

func TestBoxStates(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, h *Host) {
		b := newBox(t, h, backend.Config{})
		_, _, err := b.Freeze()
		require.ErrorIs(t, err, errRunning)
		require.ErrorIs(t, b.Restart(), errRunning)
		require.NoError(t, b.Stop())
		require.NoError(t, b.Stop())
		_, err = b.ReadFile("x", "")
		require.ErrorIs(t, err, backend.ErrStopped)
		require.ErrorIs(t, b.Mkdir("x", ""), backend.ErrStopped)
		require.ErrorIs(t, b.Extract(t.Context(), nil, ""), backend.ErrStopped)
		_, err = b.Dial(t.Context(), 80)
		require.ErrorIs(t, err, backend.ErrStopped)
		require.NoError(t, b.Remove())
		require.NoError(t, b.Remove())
		_, _, err = b.Freeze()
		require.ErrorIs(t, err, backend.ErrStopped)
		_, err = h.New(t.Context(), backend.Config{Layer: "missing"})
		require.ErrorIs(t, err, ErrNoLayer)
	})
}

func TestFilesOfDeadHosts(t *testing.T) {
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	alive := openHost(t, Options{Mode: Folder})
	dead := filepath.Join(temp, tempPrefix+"dead")
	require.NoError(t, os.Mkdir(dead, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dead, lockName), nil, 0o600))
	openHost(t, Options{Mode: Folder})
	assert.NoDirExists(t, dead)
	assert.DirExists(t, alive.dir)
}

func TestUnknownMode(t *testing.T) {
	t.Parallel()
	_, err := NewHost(Options{Mode: "vm"})
	require.ErrorContains(t, err, "vm")
}
