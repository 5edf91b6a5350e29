package embedded_test

import (
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"

	"github.com/go-vercel/sandbox/durable/embedded"
)

// TestFolder: a folder serves one server at a time, of one version, from one
// start to the next.
func TestFolder(t *testing.T) {
	dir := t.TempDir()
	srv, err := embedded.Start(t.Context(), &embedded.Options{Dir: dir})
	require.NoError(t, err)
	_, err = embedded.Start(t.Context(), &embedded.Options{Dir: dir})
	require.ErrorIs(t, err, embedded.ErrInUse)
	c, err := srv.Dial(t.Context(), client.Options{Logger: quiet})
	require.NoError(t, err)
	run, err := c.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{ID: "waits", TaskQueue: "nobody"}, "none")
	require.NoError(t, err)
	c.Close()
	require.NoError(t, srv.Close())

	_, text, err := net.SplitHostPort(srv.Address())
	require.NoError(t, err)
	port, err := strconv.Atoi(text)
	require.NoError(t, err)
	again, err := embedded.Start(t.Context(), &embedded.Options{Dir: dir, Port: port})
	require.NoError(t, err)
	assert.Equal(t, srv.Address(), again.Address(), "workers find it again")
	srv = again
	c, err = srv.Dial(t.Context(), client.Options{Logger: quiet})
	require.NoError(t, err)
	d, err := c.DescribeWorkflowExecution(t.Context(), "waits", "")
	require.NoError(t, err)
	assert.Equal(t, run.GetRunID(), d.GetWorkflowExecutionInfo().GetExecution().GetRunId())
	c.Close()
	require.NoError(t, srv.Close())

	require.NoError(t, os.WriteFile(filepath.Join(dir, "version"), []byte("0.0.1\n"), 0o600))
	_, err = embedded.Start(t.Context(), &embedded.Options{Dir: dir})
	require.ErrorIs(t, err, embedded.ErrVersion)
	if info, err := os.Stat(filepath.Join(dir, "temporal.db")); assert.NoError(t, err) {
		assert.Positive(t, info.Size(), "what is there is kept")
	}
}
