package testkit

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/internal/test/needs"
)

// AsNobody returns a command that runs tests of this program as an ordinary
// user that may make namespaces. If this process may open /dev/net/tun, so may the
// command: on many machines the device is root's, and a mount namespace gives the user one
// of its own.
func AsNobody(t *testing.T, tests string) (cmd *exec.Cmd, env string) {
	t.Helper()
	needs.Programs(t, "setpriv", "unshare")
	if os.Geteuid() != 0 {
		needs.Missing(t, "root, to become somebody else")
	}
	become := []string{"setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"}
	if out, err := exec.Command(become[0], append(become[1:], "unshare", "-r", "-m", "mount", "-t", "tmpfs", "tmpfs", "/proc")...).CombinedOutput(); err != nil {
		needs.Missing(t, "user namespaces of an ordinary user: %s", out)
	}
	if HaveTUN() {
		const device = "mount -t tmpfs -o mode=755 tmpfs /dev/net && mknod -m 666 /dev/net/tun c 10 200 && "
		become = append([]string{"unshare", "-m", "sh", "-c", device + `exec "$@"`, "sh"}, become...)
	}
	// A directory and a copy of this program that every user can use.
	dir, err := os.MkdirTemp("", "nobody-") //nolint:usetesting // what t.TempDir makes, its owner alone can enter
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, os.RemoveAll(dir)) })
	require.NoError(t, os.Chmod(dir, 0o777))
	// By another process: one that this one starts meanwhile would keep the copy open
	// for writing, and a program that is open so can't be run.
	copied := filepath.Join(dir, "program")
	out, err := exec.Command("cp", os.Args[0], copied).CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.NoError(t, os.Chmod(copied, 0o755))
	cmd = exec.Command(become[0], append(become[1:], copied, "-test.run="+tests)...)
	cmd.Dir = dir
	return cmd, "TMPDIR=" + dir
}

// HaveTUN reports whether this process may open the device that networks of
// sandboxes are made of.
func HaveTUN() bool {
	f, err := os.OpenFile("/dev/net/tun", os.O_RDWR, 0)
	return err == nil && f.Close() == nil
}
