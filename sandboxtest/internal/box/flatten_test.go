package box

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/internal/test/needs"
	"github.com/go-vercel/sandbox/sandboxtest/internal/box/backend"
)

// listing prints everything that programs in a sandbox can see of the files that the tests
// of chains change. It omits link counts, because layers share files, and the sizes of
// directories, which depend on their file systems. ls shows names that a directory lists
// although they don't exist.
const listing = `ls -1RA /vercel; cd / && find vercel home/keep etc/zz opt/zz usr/share/zz* -printf '%p %y %m %U:%G %T@ %l ' \( -type d -printf '\n' -o -printf '%s\n' \) 2>/dev/null
find /vercel/sandbox -type f ! -perm 0 -exec sha256sum {} +`

// hosted is a directory of the host. Sandboxes can rename directories in it that come from
// a lower layer.
const hosted = "/usr/share"

// TestFlattenedChain flattens a chain that contains everything that overlayfs records, and
// compares what sandboxes see before and after.
func TestFlattenedChain(t *testing.T) {
	t.Parallel()
	h := openHost(t, Options{Mode: Namespace})
	scripts := []string{
		"mkdir -p a/b/c d e/f gone/deep; echo 1 > a/b/c/one; echo 2 > d/two; echo x > gone/deep/x; echo e > e/f/e; ln d/two d/zwei; mkfifo pipe; mkdir odd; touch odd/kept; touch brief; touch -d 2001-02-03T04:05:06.789 d",
		"rm brief; rm -r gone; mkdir gone; echo y > gone/y; ln -s nowhere link; chmod 600 a/b/c/one",
		"mv a moved 2>/dev/null || (cp -a a moved; rm -r a); rm d/two; echo three > d/three; mkdir 'with space'; printf 'a\\nb' > 'with space/ü'",
		"mkdir a; echo new > a/new; (mv moved/b e/b || (cp -a moved/b e/b; rm -r moved/b)) 2>/dev/null; rm -r e/f; echo file > e/f",
		"rm e/f; mkdir e/f; echo again > e/f/again; mv e/b/c e/b/see 2>/dev/null; rm -r odd; rm pipe; chmod 1770 d",
		"mkdir odd; mkdir -p late/x; touch late/x/1 late/x/2",
		"rm late/x/1; chmod 700 moved; mv late later 2>/dev/null; setfattr -n user.note -v hello d 2>/dev/null || true",
	}
	own := len(scripts) // the scripts that change nothing of the host's
	if !needs.Slow() {
		scripts = []string{scripts[0], scripts[1] + "; " + scripts[2], strings.Join(scripts[3:], "; ")}
		own = len(scripts)
	}
	hosts := needs.Slow() && !h.Rootless() // slow, because the host has many files
	if hosts {
		// Whiteouts, renames and new directories on top of the host's files.
		h2 := func(script string) string { return "cd " + hosted + " && " + script }
		scripts = append(scripts,
			h2("set -- $(find . -mindepth 2 -maxdepth 2 -type f | sort | head -40); rm -f \"$@\"; d=$(find . -mindepth 1 -maxdepth 1 -type d | sort | head -1); mv \"$d\" zz1; d=$(find . -mindepth 1 -maxdepth 1 -type d | sort | head -1); rm -r \"$d\"; mkdir \"$d\"; echo own > \"$d/own\"; chown 1 \"$d/own\""),
			h2("mkdir zz2; mv zz1 zz2/inside; touch zz2/inside/added; d=$(find . -mindepth 1 -maxdepth 1 -type d | sort | sed -n 3p); rm -r \"$d\""),
			h2("mv zz2 zz3; mkdir zz3/inside/sub; touch zz3/inside/sub/s; f=$(find zz3/inside -type f | sort | head -1); rm \"$f\""),
			h2("rm -r zz3/inside/sub"),
		)
	}
	// look lists what a sandbox on the layer of a script sees. Of the host's many files it
	// lists only those in changed directories.
	look := func(script int, b *Box) string {
		whole := listing
		if script >= own {
			whole += "; find " + hosted + " -printf '%p %y %m %U:%G %l ' \\( -type d -printf '\n' -o -printf '%s\n' \\) | sort | sha256sum; find " + hosted + "/zz3 -ls | wc -l; ls " + hosted
		}
		return sorted(shRoot(t, b, whole))
	}
	var layers []backend.LayerID
	var seen []string
	b := newBox(t, h, backend.Config{})
	for i, script := range scripts {
		shRoot(t, b, "cd /vercel/sandbox && "+script)
		require.NoError(t, b.Stop())
		layer, _, err := b.Freeze()
		require.NoError(t, err)
		b = newBox(t, h, backend.Config{Layer: layer})
		layers, seen = append(layers, layer), append(seen, look(i, b))
	}
	require.NoError(t, b.Remove())
	require.Contains(t, seen[len(seen)-1], "with space")
	if hosts {
		require.Contains(t, seen[len(seen)-1], "\nzz3", "no directory of the host was renamed")
	}

	h.store.maxChain = 1
	for i, layer := range layers {
		if i != 1 && i != len(layers)-1 && !needs.Slow() {
			continue
		}
		b := newBox(t, h, backend.Config{Layer: layer})
		assert.Equal(t, seen[i], look(i, b), "after step %d", i)
		require.NoError(t, b.Remove())
		if i > 0 {
			flat, chain, err := h.store.acquire(layer, true)
			require.NoError(t, err)
			assert.Len(t, chain, 1)
			assert.NotEqual(t, layer, flat)
			_, err = os.Lstat(filepath.Join(h.store.treeDir(flat), "vercel/sandbox/brief"))
			require.ErrorIs(t, err, fs.ErrNotExist, "a whiteout that hides nothing")
			h.store.release(flat)
		}
	}
	// A flattened layer is the start of a chain like any other, and can be changed
	// in the same ways.
	b = newBox(t, h, backend.Config{Layer: layers[len(layers)-1]})
	before := shRoot(t, b, "cd /vercel/sandbox && mv later latest; rm -r latest gone; mkdir gone; rm link; ls -A gone d; "+listing)
	require.NoError(t, b.Stop())
	next, _, err := b.Freeze()
	require.NoError(t, err)
	b = newBox(t, h, backend.Config{Layer: next})
	after := shRoot(t, b, "cd /vercel/sandbox && ls -A gone d; "+listing)
	assert.Equal(t, sorted(before), sorted(after))
	assert.NotContains(t, after, "later")
	require.NoError(t, b.Remove())

	for _, layer := range append(layers, next) {
		require.NoError(t, h.RemoveLayer(layer))
	}
	list, err := os.ReadDir(filepath.Join(h.store.dir, "l"))
	require.NoError(t, err)
	assert.Empty(t, list, "layers that nothing needs were not removed")
}

// shRoot runs a script as a sandbox's root, or as its only user.
func shRoot(t testing.TB, b *Box, script string) string {
	t.Helper()
	out, errOut, code := run(t, b, backend.Spec{Path: "sh", Args: []string{"-c", script}, User: backend.RootUser})
	require.Zero(t, code, "%s%s", out, errOut)
	return strings.TrimSpace(out)
}

func sorted(lines string) string {
	return strings.Join(slices.Sorted(strings.Lines(lines+"\n")), "")
}

// TestFlattenedLayersOutliveTheHost: the layer that replaces a chain is found after a
// restart, and a sandbox that uses it keeps it.
func TestFlattenedLayersOutliveTheHost(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "a dir:with,odd\\name")
	h := openHost(t, Options{Mode: Namespace, Dir: dir})
	h.store.maxChain = 2
	var layer backend.LayerID
	for i := range 3 {
		layer = freeze(t, h, layer, fmt.Sprintf("echo %d > f%d", i, i))
	}
	require.NoError(t, newBox(t, h, backend.Config{Layer: layer}).Remove())
	flat := h.store.layers[layer].Flat
	require.NotEmpty(t, flat)
	long := freeze(t, h, freeze(t, h, freeze(t, h, "", "true"), "true"), "true")
	require.NoError(t, h.Close())
	litter := filepath.Join(dir, h.Kind(), "l", "litter") // of a killed host
	require.NoError(t, os.Mkdir(litter, 0o755))
	_, err := h.New(t.Context(), backend.Config{Layer: long})
	require.ErrorIs(t, err, backend.ErrStopped)

	h = openHost(t, Options{Mode: Namespace, Dir: dir})
	assert.NoDirExists(t, litter)
	require.NoError(t, h.KeepOnly([]backend.LayerID{layer}))
	assert.Equal(t, flat, h.store.layers[layer].Flat)
	b := newBox(t, h, backend.Config{Layer: layer})
	require.NoError(t, h.RemoveLayer(layer))
	assert.Equal(t, "0\n1\n2", sh(t, b, "cat f*"))
	assert.DirExists(t, h.store.treeDir(flat))
	require.NoError(t, b.Remove())
	assert.NoDirExists(t, h.store.treeDir(flat))
}

// TestStoppedManyTimes goes far beyond the number of layers that the kernel
// supports, keeping only the last snapshot, like a sandbox that is stopped and
// resumed.
func TestStoppedManyTimes(t *testing.T) {
	t.Parallel()
	needs.Long(t, "450 sandboxes take a while")
	h := openHost(t, Options{Mode: Namespace})
	const times = 450
	want := make(map[string]string)
	var layer backend.LayerID
	for i := range times {
		script := fmt.Sprintf("echo %d > n%d; echo %d >> log; mkdir -p d%d; echo %d > d%d/f", i, i%37, i, i%11, i, i%11)
		want[fmt.Sprintf("./n%d", i%37)] = fmt.Sprint(i)
		want[fmt.Sprintf("./d%d/f", i%11)] = fmt.Sprint(i)
		if i%5 == 4 {
			script += fmt.Sprintf("; rm -f n%d; rm -rf d%d", i%7, i%3)
			delete(want, fmt.Sprintf("./n%d", i%7))
			delete(want, fmt.Sprintf("./d%d/f", i%3))
		}
		if i%13 == 12 {
			script += "; rm -rf kept; mkdir new; echo " + fmt.Sprint(i) + " > new/x; mv new kept"
			want["./kept/x"] = fmt.Sprint(i)
		}
		next := freeze(t, h, layer, script)
		if layer != "" {
			require.NoError(t, h.RemoveLayer(layer))
		}
		layer = next
	}
	b := newBox(t, h, backend.Config{Layer: layer})
	got := make(map[string]string)
	for line := range strings.Lines(sh(t, b, "find . -type f ! -name log -exec grep -H . {} +")) {
		name, text, _ := strings.Cut(strings.TrimSpace(line), ":")
		got[name] = text
	}
	assert.Equal(t, want, got)
	assert.Equal(t, fmt.Sprint(times), sh(t, b, "wc -l < log"))
	list, err := os.ReadDir(filepath.Join(h.store.dir, "l"))
	require.NoError(t, err)
	assert.LessOrEqual(t, len(list), longestChain+2, "old layers are kept")
}
