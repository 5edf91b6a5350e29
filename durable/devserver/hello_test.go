package devserver_test

import (
	"os"
	"os/exec"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/sandboxtest"
)

// TestFirstProgram: the program that docs/durable.md begins with prints the output and
// leaves no sandbox.
func TestFirstProgram(t *testing.T) {
	srv, _ := startTemporal(t)
	emulator := sandboxtest.New(t, nil)
	cmd := exec.Command("go", "test", "-count=1", "-v", "-run", "^TestHello$", "github.com/go-vercel/sandbox/durable/session")
	cmd.Env = slices.Concat(os.Environ(), srv.Environ(), emulator.Environ())
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	assert.Contains(t, string(out), "\nHello\n")
	for info, err := range emulator.Client().List(t.Context(), nil) {
		require.NoError(t, err)
		assert.Fail(t, "a sandbox remains", info.Name)
	}
}
