//go:build unix

package untar

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestExtractHole(t *testing.T) {
	_, err := extract(t, zeros(10<<30), Options{MaxEntries: 10, MaxBytes: 10<<30 - 1})
	assert.ErrorIs(t, err, ErrUnsafe)

	size := int64(10 << 30)
	if testing.Short() {
		size = 1 << 30
	}
	in, err := extract(t, zeros(size), lax)
	require.NoError(t, err)
	info, err := os.Stat(filepath.Join(in, "hole"))
	require.NoError(t, err)
	assert.Equal(t, size, info.Size())
	assert.Less(t, info.Sys().(*syscall.Stat_t).Blocks*512, int64(1<<20), "the hole takes up the disk")
}
