package embedded_test

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"

	"github.com/go-vercel/sandbox/durable/embedded"
	"github.com/go-vercel/sandbox/internal/test/testkit"
)

// left is how many goroutines a server may leave that is closed: 6 are those of the
// connection that Temporal's own workers have, and of the database's pools.
const left = 8

// TestClose: a server that is closed leaves its database in one file, which may be copied
// at once, removed, and made anew by the same process. After a moment none of its files is
// open, and no more than a few goroutines are left.
func TestClose(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "there")
	starts := 0
	// start starts a server in a folder, and reports whether it has the workflow.
	start := func(dir string) (has bool) {
		t.Helper()
		starts++
		srv, err := embedded.Start(t.Context(), &embedded.Options{Dir: dir})
		require.NoError(t, err)
		c, err := srv.Dial(t.Context(), client.Options{Logger: quiet})
		require.NoError(t, err)
		_, err = c.DescribeWorkflowExecution(t.Context(), "waits", "")
		if has = err == nil; !has {
			_, err = c.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{ID: "waits", TaskQueue: "nobody"}, "none")
			require.NoError(t, err)
		}
		c.Close()
		require.NoError(t, srv.Close())
		return has
	}
	before := runtime.NumGoroutine()
	assert.False(t, start(dir))
	data, err := os.ReadFile(filepath.Join(dir, "temporal.db"))
	require.NoError(t, err)
	other := t.TempDir()
	require.NoError(t, os.Chmod(other, 0o700)) //nolint:gosec // a folder is entered
	require.NoError(t, os.WriteFile(filepath.Join(other, "temporal.db"), data, 0o600))
	assert.True(t, start(other), "the file has all of it")
	assert.True(t, start(dir))
	require.NoError(t, os.RemoveAll(dir))
	assert.False(t, start(dir), "what was there is gone")

	assert.Eventually(t, func() bool { return runtime.NumGoroutine() <= before+left*starts }, testkit.Patience, 50*time.Millisecond)
	for _, dir := range []string{dir, other} {
		assert.Eventually(t, func() bool { return len(opened(dir)) == 0 }, testkit.Patience, 50*time.Millisecond, "%v", opened(dir))
	}
}

// opened are the files of a folder that this process has open, where /proc tells.
func opened(dir string) (names []string) {
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return nil
	}
	for _, f := range files {
		if to, err := os.Readlink("/proc/self/fd/" + f.Name()); err == nil && strings.HasPrefix(to, dir+"/") {
			names = append(names, to)
		}
	}
	return names
}
