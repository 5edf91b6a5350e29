package units_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/internal/engine"
	"github.com/go-vercel/sandbox/internal/test/needs"
)

// TestTreeOfBusyProcess: a process that waits for the kernel does not stop at SIGSTOP. The
// script gives up waiting for this, and signals the process and its child. Instead of
// processes, the test uses files that look like those of /proc.
func TestTreeOfBusyProcess(t *testing.T) {
	t.Parallel()
	needs.Programs(t, "sh", "tr")
	proc := t.TempDir()
	process := func(pid, parent int, name, state, environ string) {
		dir := filepath.Join(proc, fmt.Sprint(pid))
		require.NoError(t, os.Mkdir(dir, 0o700))
		stat := fmt.Sprintf("%d (%s) %s %d%s %d 0\n", pid, name, state, parent, strings.Repeat(" 0", 17), 1000+pid)
		require.NoError(t, os.WriteFile(filepath.Join(dir, "stat"), []byte(stat), 0o600))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "environ"), []byte(environ), 0o600))
	}
	const mark = engine.TreeVariable + "=session/command\x00"
	process(10, 1, "service", "S", "")
	process(20, 10, "python3", "D", "A=b\x00"+mark)
	process(21, 20, "python3", "S", mark)
	process(30, 10, "stranger", "S", "")
	begin := `mkdir "/proc/self" "/proc/$$"
echo "$$ (sh) R 10` + strings.Repeat(" 0", 17) + ` 2000 0" | tee "/proc/self/stat" >"/proc/$$/stat"
kill() { echo "$1 $2" >>"/proc/kills"; [ "$1 $2" != "-9 20" ] && [ "$1 $2" != "-9 21" ] || rm -r "/proc/$2"; }
`
	script := strings.ReplaceAll(begin+engine.TreeScript, "/proc", proc)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, "sh", "-c", script, "sh", "9", "session/command", "").CombinedOutput()
	require.NoError(t, err, "%s", out)
	assert.Equal(t, "\n", string(out))
	kills, err := os.ReadFile(filepath.Join(proc, "kills"))
	require.NoError(t, err)
	assert.Equal(t, "-STOP 20\n-STOP 21\n-9 20\n-9 21\n", string(kills))
}
