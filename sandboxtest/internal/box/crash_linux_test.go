package box

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/sandboxtest/internal/box/backend"
)

const crashEnv = "BOX_TEST_CRASH"

// TestKilledHost runs twice: as the process that is killed, and as the process that checks
// what it leaves behind.
func TestKilledHost(t *testing.T) {
	if seconds := os.Getenv(crashEnv); seconds != "" {
		h, err := NewHost(Options{Mode: Namespace})
		require.NoError(t, err)
		b := newBox(t, h, backend.Config{})
		sh(t, b, "(setsid sleep "+seconds+" >/dev/null 2>&1 &)")
		_, err = b.Start(context.Background(), backend.Spec{Path: "sleep", Args: []string{seconds}})
		require.NoError(t, err)
		fmt.Println("ready", h.dir)
		select {}
	}
	// A host of another test would remove the leftovers.
	t.Setenv("TMPDIR", t.TempDir())
	h := openHost(t, Options{Mode: Namespace}) // skips where there are no namespaces
	before := mounts(t)
	seconds := mark()
	cmd := exec.Command(os.Args[0], "-test.run=^TestKilledHost$")
	cmd.Env = append(os.Environ(), crashEnv+"="+seconds)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	var dir string
	for lines := bufio.NewScanner(out); dir == "" && lines.Scan(); {
		dir, _ = strings.CutPrefix(lines.Text(), "ready ")
		if dir == lines.Text() {
			dir = ""
		}
	}
	require.NotEmpty(t, dir)
	assertRuns(t, seconds)
	require.NoError(t, cmd.Process.Kill())
	_ = cmd.Wait()
	// Only the command lines of the sandboxes' processes contain its variable.
	assertGone(t, "sleep\x00"+seconds)
	assert.Equal(t, before, mounts(t))
	// The next host removes the leftovers in the temporary directory.
	assert.DirExists(t, dir)
	require.NoError(t, h.Close())
	openHost(t, Options{Mode: Folder})
	assert.NoDirExists(t, dir)
}
