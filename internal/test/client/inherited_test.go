//go:build unix

package client_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/go-vercel/sandbox/internal/inherited"
)

// TestInheritedFilesClose: inherited.Close closes the descriptors that this process has
// inherited from its parent, so that a command gets only the files in its ExtraFiles.
func TestInheritedFilesClose(t *testing.T) {
	name := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(name, []byte("secret\n"), 0o600))
	var last int
	for range 3 {
		fd, err := unix.Open(name, unix.O_RDONLY, 0) // without O_CLOEXEC
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, unix.Close(fd)) })
		last = fd
	}
	given, err := os.Open(os.DevNull)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, given.Close()) })
	script := `for fd in 3 4 5 6 7 8 9; do if test -e /dev/fd/$fd; then cat <&$fd && echo $fd; fi; done 2>/dev/null; :`
	found := func(clean bool) string {
		cmd := exec.CommandContext(t.Context(), "sh", "-c", script)
		cmd.ExtraFiles = []*os.File{given}
		if clean {
			inherited.Close(cmd)
		}
		out, err := cmd.Output()
		require.NoError(t, err)
		return string(out)
	}
	assert.Contains(t, found(false), "secret", "without inherited.Close, the command gets the file")
	assert.Equal(t, "3\n", found(true))

	// Open a descriptor, and lower the limit of open files below its number.
	high, err := unix.FcntlInt(uintptr(last), unix.F_DUPFD, 200)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, unix.Close(high)) })
	var limit unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &limit))
	t.Cleanup(func() { assert.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &limit)) })
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 150, Max: limit.Max}))
	assert.Equal(t, "3\n", found(true))
}
