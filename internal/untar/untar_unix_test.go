//go:build unix

package untar

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/internal/test/needs"
)

func TestExtractHole(t *testing.T) {
	_, err := extract(t, zeros(t, 10<<30), Options{MaxEntries: 10, MaxBytes: 10<<30 - 1})
	assert.ErrorIs(t, err, ErrUnsafe)

	size := int64(10 << 30)
	if !needs.Slow() {
		size = 1 << 30
	}
	in, err := extract(t, zeros(t, size), lax)
	require.NoError(t, err)
	info, err := os.Stat(filepath.Join(in, "hole"))
	require.NoError(t, err)
	assert.Equal(t, size, info.Size())
	assert.Less(t, info.Sys().(*syscall.Stat_t).Blocks*512, int64(1<<20), "the hole takes up the disk")
}

// TestExtractUmask: an archive gives no permissions that the umask forbids.
func TestExtractUmask(t *testing.T) {
	old := syscall.Umask(0o027)
	defer syscall.Umask(old)
	f, d := file("d/f", "x"), dir("d", 0o777)
	f.Mode = 0o666
	in, err := extract(t, archive(t, d, f, dir("e", 0o777), dir("e", 0o777)), lax)
	require.NoError(t, err)
	for name, want := range map[string]os.FileMode{"d": 0o750, "d/f": 0o640, "e": 0o750} {
		info, err := os.Stat(filepath.Join(in, name))
		require.NoError(t, err)
		assert.Equal(t, want, info.Mode().Perm(), name)
	}
}
