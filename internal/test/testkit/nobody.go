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

// AsNobody returns a command that runs tests of this program as an ordinary user, who may
// create namespaces. If this process may open /dev/net/tun, the command may open it, too. On
// many systems only root may open this device, so the command gets its own device, in a
// mount namespace.
func AsNobody(t *testing.T, tests string) (cmd *exec.Cmd, env string) {
	t.Helper()
	needs.Programs(t, "setpriv", "unshare")
	if os.Geteuid() != 0 {
		needs.Missing(t, "root, to start a process as another user")
	}
	become := []string{"setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"}
	if out, err := exec.Command(become[0], append(become[1:], "unshare", "-r", "-m", "mount", "-t", "tmpfs", "tmpfs", "/proc")...).CombinedOutput(); err != nil {
		needs.Missing(t, "user namespaces of an ordinary user: %s", out)
	}
	if HaveTUN() {
		const device = "mount -t tmpfs -o mode=755 tmpfs /dev/net && mknod -m 666 /dev/net/tun c 10 200 && "
		become = append([]string{"unshare", "-m", "sh", "-c", device + `exec "$@"`, "sh"}, become...)
	}
	// Copy this program to a directory that every user can access.
	dir, err := os.MkdirTemp("", "nobody-") //nolint:usetesting // other users can't enter the directory of t.TempDir
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, os.RemoveAll(dir)) })
	require.NoError(t, os.Chmod(dir, 0o777))
	// Let another process copy it. If this process had the copy open for writing, a process
	// that another test starts at the same time could inherit it. Then the copy could not be
	// run, because it would still be open for writing.
	copied := filepath.Join(dir, "program")
	out, err := exec.Command("cp", os.Args[0], copied).CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.NoError(t, os.Chmod(copied, 0o755))
	cmd = exec.Command(become[0], append(become[1:], copied, "-test.run="+tests)...)
	cmd.Dir = dir
	return cmd, "TMPDIR=" + dir
}

// HaveTUN reports whether this process may open the device that networks of sandboxes need.
func HaveTUN() bool {
	f, err := os.OpenFile("/dev/net/tun", os.O_RDWR, 0)
	return err == nil && f.Close() == nil
}
