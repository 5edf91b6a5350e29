package box

import (
	"bytes"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/internal/test/needs"
	"github.com/go-vercel/sandbox/sandboxtest/internal/box/backend"
)

// countResources counts the descriptors and threads of this process.
func countResources(t *testing.T) (descriptors, threads int) {
	t.Helper()
	for dir, n := range map[string]*int{"/proc/self/fd": &descriptors, "/proc/self/task": &threads} {
		entries, err := os.ReadDir(dir)
		require.NoError(t, err)
		*n = len(entries)
	}
	return descriptors, threads
}

// TestBoxesReleaseResources: a sandbox with a process uses a few descriptors and threads,
// and none once it is removed.
func TestBoxesReleaseResources(t *testing.T) {
	t.Parallel()
	const alone = "SANDBOX_TEST_ALONE"
	if os.Getenv(alone) == "" { // other tests open and close files, too
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestBoxesReleaseResources$", "-test.v")
		cmd.Env = append(os.Environ(), alone+"=1")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		if bytes.Contains(out, []byte("--- SKIP")) {
			needs.Other(t, "%s", out)
		}
		return
	}
	const boxes, perBox = 6, 10
	h := openHost(t, Options{Mode: Namespace})
	before, threadsBefore := countResources(t)
	var all []*Box
	for range boxes {
		b := newBox(t, h, backend.Config{})
		start(t, b, backend.Spec{Path: "sleep", Args: []string{"600"}})
		all = append(all, b)
	}
	during, threadsDuring := countResources(t)
	t.Logf("%d sandboxes: %d descriptors and %d threads more", boxes, during-before, threadsDuring-threadsBefore)
	assert.LessOrEqual(t, during-before, boxes*perBox)
	assert.LessOrEqual(t, threadsDuring-threadsBefore, boxes*3)
	for _, b := range all {
		require.NoError(t, b.Stop())
		require.NoError(t, b.Remove())
	}
	var after, threadsAfter int
	assert.Eventually(t, func() bool {
		after, threadsAfter = countResources(t)
		return after <= before+2 && threadsAfter <= threadsBefore+boxes/2 // the runtime keeps some for itself
	}, time.Minute, 10*time.Millisecond, "descriptors or threads were not released")
	t.Logf("then %d descriptors and %d threads more than before", after-before, threadsAfter-threadsBefore)
}
