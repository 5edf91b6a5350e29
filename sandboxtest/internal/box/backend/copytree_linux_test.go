package backend

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestCopyTree: a copy has all properties of the original, and needs no more space.
func TestCopyTree(t *testing.T) {
	dir := t.TempDir()
	from, to := filepath.Join(dir, "from"), filepath.Join(dir, "to")
	out, err := exec.Command("sh", "-c", `
		mkdir -p "$1/dir/empty" && cd "$1" && echo text > file && ln file dir/second && ln -s file link &&
		mkfifo -m 620 pipe && chmod 4755 file && chmod 3777 dir && touch -h -d @1000000000 file dir pipe link
		truncate -s 20G hole && printf start | dd of=hole conv=notrunc 2>/dev/null && printf end | dd of=hole bs=1 seek=10000000000 conv=notrunc 2>/dev/null`,
		"sh", from).CombinedOutput()
	require.NoError(t, err, "%s", out)
	attributes := unix.Lsetxattr(filepath.Join(from, "file"), "user.note", []byte("value"), 0) == nil

	require.NoError(t, CopyTree(from, to))
	stat := func(name string) (s unix.Stat_t) {
		require.NoError(t, unix.Lstat(name, &s))
		return s
	}
	for _, name := range []string{"file", "dir", "dir/second", "dir/empty", "link", "pipe", "hole"} {
		was, is := stat(filepath.Join(from, name)), stat(filepath.Join(to, name))
		assert.Equal(t, was.Mode, is.Mode, name)
		assert.Equal(t, was.Size, is.Size, name)
		assert.Equal(t, was.Mtim, is.Mtim, name)
	}
	assert.Equal(t, time.Unix(1000000000, 0).Unix(), stat(filepath.Join(to, "dir")).Mtim.Sec)
	assert.Equal(t, stat(filepath.Join(to, "file")).Ino, stat(filepath.Join(to, "dir/second")).Ino, "one file")
	assert.Less(t, stat(filepath.Join(to, "hole")).Blocks*512, int64(1<<20))
	hole, err := os.Open(filepath.Join(to, "hole"))
	require.NoError(t, err)
	defer hole.Close()
	text := make([]byte, 5)
	_, err = hole.ReadAt(text, 0)
	require.NoError(t, err)
	assert.Equal(t, "start", string(text))
	_, err = hole.ReadAt(text, 10_000_000_000)
	require.NoError(t, err)
	assert.Equal(t, "end\x00\x00", string(text))
	if attributes {
		n, err := unix.Lgetxattr(filepath.Join(to, "file"), "user.note", text)
		require.NoError(t, err)
		assert.Equal(t, "value", string(text[:n]))
	}
}
