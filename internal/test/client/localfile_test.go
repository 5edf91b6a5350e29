package client_test

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/internal/localfile"
	"github.com/go-vercel/sandbox/internal/test/needs"
)

// TestLocalFileResolve: Resolve follows links and finds the file to replace.
func TestLocalFileResolve(t *testing.T) {
	t.Parallel()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	at := func(name string) string { return filepath.Join(dir, name) }
	require.NoError(t, os.WriteFile(at("file"), nil, 0o600))
	require.NoError(t, os.Mkdir(at("dir"), 0o700))
	for from, to := range map[string]string{"link": "file", "dangling": "missing", "again": "link", "up": "dir/../file", "loop": "loop", "out": at("dir")} {
		require.NoError(t, os.Symlink(to, at(from)))
	}
	for name, want := range map[string]string{
		"file": "file", "link": "file", "again": "file", "up": "file", "dangling": "missing", "missing": "missing", "dir": "dir", "out": "dir", "no/dir": "no/dir",
	} {
		p, err := localfile.Resolve(at(name))
		require.NoError(t, err, name)
		assert.Equal(t, at(want), p.Path, name)
		assert.False(t, p.Special, name)
		assert.Equal(t, want == "missing" || want == "no/dir", p.Info == nil, name)
	}
	_, err = localfile.Resolve(at("loop"))
	require.ErrorIs(t, err, syscall.ELOOP)
	_, err = localfile.Resolve(at("file/x"))
	require.Error(t, err)
	p, err := localfile.Resolve(os.DevNull)
	require.NoError(t, err)
	assert.True(t, p.Special)
}

// TestLocalFileDescriptor writes to a link to /dev/fd/N, the name of the descriptor of an
// open file. The data follows what has been written to the file before.
func TestLocalFileDescriptor(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		needs.Other(t, "Windows has no names for descriptors")
	}
	name := filepath.Join(t.TempDir(), "out")
	f, err := os.Create(name)
	require.NoError(t, err)
	defer f.Close()
	_, err = f.WriteString("before ")
	require.NoError(t, err)
	link := filepath.Join(t.TempDir(), "stdout")
	require.NoError(t, os.Symlink(fmt.Sprintf("/dev/fd/%d", f.Fd()), link))
	p, err := localfile.Resolve(link)
	require.NoError(t, err)
	require.True(t, p.Special)
	w, err := p.Open()
	require.NoError(t, err)
	_, err = io.WriteString(w, "after")
	require.NoError(t, err)
	require.NoError(t, w.Close())
	data, err := os.ReadFile(name)
	require.NoError(t, err)
	assert.Equal(t, "before after", string(data))
}
