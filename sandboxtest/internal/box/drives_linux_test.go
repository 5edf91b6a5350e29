package box

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/sandboxtest/internal/box/backend"
)

// TestDriveCopyOnWrite: files of a drive that a sandbox only reads are not copied.
func TestDriveCopyOnWrite(t *testing.T) {
	t.Parallel()
	h := openHost(t, Options{Mode: Namespace})
	const boxes, size = 3, 4 << 20
	b := newBox(t, h, backend.Config{Mounts: []backend.Mount{{Path: "/data", Drive: "d", Keep: true}}})
	sh(t, b, "for i in 1 2 3 4; do head -c 1048576 /dev/zero > /data/$i; done")
	require.NoError(t, b.Remove())
	for range boxes {
		b := newBox(t, h, backend.Config{Mounts: []backend.Mount{{Path: "/data", Drive: "d"}}})
		assert.Equal(t, "4194304\n1048577", sh(t, b, "cat /data/* | wc -c; echo >> /data/1; wc -c < /data/1"))
	}
	// Only root can look into an overlay's work directory.
	changed, err := filepath.Glob(filepath.Join(h.store.dir, "b", "*", "m0", "u"))
	require.NoError(t, err)
	require.Len(t, changed, boxes)
	var used int64
	for _, dir := range changed {
		size, err := backend.DiskUsage(dir)
		require.NoError(t, err)
		used += size
	}
	assert.Less(t, used, int64(boxes*(size/4+1<<18)), "three sandboxes have each changed one file in four")
	assert.GreaterOrEqual(t, used, int64(boxes*size/4))
}
