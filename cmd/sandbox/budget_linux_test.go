package main

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestCopyMemory copies a file that is larger than the memory that the copy may
// take, both ways.
func TestCopyMemory(t *testing.T) {
	t.Parallel()
	const size, limit = 192 << 20, 64 << 20
	d := newDesk(t, nil)
	d.ok("create", "--name", "c")
	f, err := os.Create(filepath.Join(d.dir, "big"))
	require.NoError(t, err)
	require.NoError(t, f.Truncate(size))
	require.NoError(t, f.Close())
	for _, args := range [][]string{{"cp", "big", "c:big"}, {"cp", "c:big", "back"}} {
		cmd := d.command(t.Context(), args...)
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, string(out))
		usage, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage)
		require.True(t, ok)
		assert.Less(t, usage.Maxrss<<10, int64(limit), "%v", args)
		t.Logf("%v: %d MiB of memory for %d MiB", args, usage.Maxrss>>10, size>>20)
	}
	back, err := os.Stat(filepath.Join(d.dir, "back"))
	require.NoError(t, err)
	assert.EqualValues(t, size, back.Size())
}

// TestBudgets builds the program as it is released, and holds it against the
// official CLI in one run.
func TestBudgets(t *testing.T) {
	modules := os.Getenv("SANDBOX_JS_CLI")
	if modules == "" {
		t.Skip("SANDBOX_JS_CLI, the node_modules folder with npm's sandbox, is not set")
	}
	program := filepath.Join(t.TempDir(), "sandbox")
	build := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", program, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := build.CombinedOutput()
	require.NoError(t, err, string(out))
	info, err := os.Stat(program)
	require.NoError(t, err)
	t.Logf("one file of %.1f MB", float64(info.Size())/1e6)
	assert.Less(t, info.Size(), int64(20e6))

	d := newDesk(t, nil)
	d.ok("create", "--name", "c")
	median := func(n int, name string, args ...string) time.Duration {
		var took []time.Duration
		for range n {
			cmd := exec.Command(name, args...)
			cmd.Dir = d.dir
			for _, v := range d.env {
				if !strings.HasPrefix(v, asProgram) {
					cmd.Env = append(cmd.Env, v)
				}
			}
			cmd.Stdout = io.Discard
			start := time.Now()
			require.NoError(t, cmd.Run())
			took = append(took, time.Since(start))
		}
		slices.Sort(took)
		return took[n/2]
	}
	ours := median(21, program, "--version")
	theirs := median(5, "node", filepath.Join(modules, "sandbox", "bin", "sandbox.mjs"), "--version")
	median(1, program, "__complete", "exec", "") // fills the cache
	completion := median(11, program, "__complete", "exec", "")
	t.Logf("start: %v, the official CLI %v; a completion %v", ours, theirs, completion)
	assert.Less(t, ours, theirs/10)
	assert.Less(t, completion, theirs)
}
