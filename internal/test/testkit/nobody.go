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

// AsNobody returns a command that runs tests of this program as an ordinary user that may
// create namespaces. If this process may open /dev/net/tun, so may the command: a mount
// namespace gives the user a device of its own, because root owns the machine's on many
// systems.
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
	// A directory and a copy of this program that every user can access.
	dir, err := os.MkdirTemp("", "nobody-") //nolint:usetesting // only its owner can enter a directory of t.TempDir
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, os.RemoveAll(dir)) })
	require.NoError(t, os.Chmod(dir, 0o777))
	// Another process copies it. A process that this one starts at the same time would
	// keep the copy open for writing, and a program that is open for writing can't be run.
	copied := filepath.Join(dir, "program")
	out, err := exec.Command("cp", os.Args[0], copied).CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.NoError(t, os.Chmod(copied, 0o755))
	cmd = exec.Command(become[0], append(become[1:], copied, "-test.run="+tests)...)
	cmd.Dir = dir
	return cmd, "TMPDIR=" + dir
}

// HaveTUN reports whether this process may open the device for networks of sandboxes.
func HaveTUN() bool {
	f, err := os.OpenFile("/dev/net/tun", os.O_RDWR, 0)
	return err == nil && f.Close() == nil
}
