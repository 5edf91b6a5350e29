package namespaces

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/go-vercel/sandbox/internal/test/needs"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestStarter(t *testing.T) {
	t.Parallel()
	program, ok := starter("/bin/echo")
	if !ok {
		needs.Other(t, "there is no starter for this architecture")
	}
	name := filepath.Join(t.TempDir(), "program")
	// Start no other process in between: it would inherit the file open for writing, and
	// running it would fail with "text file busy".
	syscall.ForkLock.RLock()
	err := os.WriteFile(name, program, 0o755)
	syscall.ForkLock.RUnlock()
	require.NoError(t, err)
	out, err := exec.Command(name, "a", "b  c").Output()
	require.NoError(t, err)
	assert.Equal(t, "a b  c\n", string(out))
}
