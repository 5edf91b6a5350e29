package box

import (
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/internal/test/needs"
	"github.com/go-vercel/sandbox/sandboxtest/internal/box/backend"
)

// TestBusyboxAsShell: a sandbox starts if /bin/sh is BusyBox. BusyBox acts according to the
// name under which it is started: as init it would run the machine's inittab.
func TestBusyboxAsShell(t *testing.T) {
	t.Parallel()
	const inside = "SANDBOX_TEST_BUSYBOX_IS_SH"
	if os.Getenv(inside) != "" {
		h, err := NewHost(Options{Mode: Namespace})
		require.NoError(t, err)
		b := newBox(t, h, backend.Config{})
		assert.Equal(t, "fine", sh(t, b, "echo fine"))
		require.NoError(t, h.Close())
		return
	}
	needs.Programs(t, "busybox", "unshare", "mount")
	sharedHost(t, Namespace) // skips where there are no namespaces
	busybox, err := exec.LookPath("busybox")
	require.NoError(t, err)
	flags := "-m"
	if os.Geteuid() != 0 {
		flags = "-rm"
	}
	unshare := func(script string, env ...string) ([]byte, error) {
		cmd := exec.CommandContext(t.Context(), "unshare", flags, "sh", "-c",
			`mount --bind "$1" "$(readlink -f /bin/sh)" && /bin/sh --help 2>&1 | grep -q BusyBox && `+script, "sh", busybox, os.Args[0])
		cmd.Env = append(os.Environ(), env...)
		return cmd.CombinedOutput()
	}
	if out, err := unshare("true"); err != nil {
		needs.Missing(t, "a static busybox and mount namespaces: %v: %s", err, out)
	}
	out, err := unshare(`exec "$2" -test.v "-test.run=^TestBusyboxAsShell$"`, inside+"=1")
	require.NoError(t, err, "%s", out)
	assert.Contains(t, string(out), "PASS: TestBusyboxAsShell")
}
