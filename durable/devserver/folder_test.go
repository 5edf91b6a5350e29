package devserver_test

import (
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"go.temporal.io/server/common/headers"

	"github.com/go-vercel/sandbox/durable/devserver"
)

// TestFolder: a folder keeps workflows from one start to the next. One server at a time can
// use it. A deleted folder is created again, empty.
func TestFolder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "there")
	// start starts a server and reports whether it knows the workflow. If not, it starts
	// the workflow.
	start := func(port int) (srv *devserver.Server, known bool) {
		t.Helper()
		srv, err := devserver.Start(t.Context(), dir, port)
		require.NoError(t, err)
		c, err := srv.Dial(t.Context(), client.Options{Logger: quiet})
		require.NoError(t, err)
		defer c.Close()
		if _, err = c.DescribeWorkflowExecution(t.Context(), "waits", ""); err == nil {
			return srv, true
		}
		_, err = c.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{ID: "waits", TaskQueue: "nobody"}, "none")
		require.NoError(t, err)
		return srv, false
	}
	srv, known := start(0)
	assert.False(t, known)
	_, err := devserver.Start(t.Context(), dir, 0)
	require.ErrorIs(t, err, devserver.ErrInUse)
	require.NoError(t, srv.Close())

	_, text, err := net.SplitHostPort(srv.Address())
	require.NoError(t, err)
	port, err := strconv.Atoi(text)
	require.NoError(t, err)
	again, known := start(port)
	assert.True(t, known)
	assert.Equal(t, srv.Address(), again.Address(), "a restarted server has the same address")
	require.NoError(t, again.Close())

	require.NoError(t, os.RemoveAll(dir))
	fresh, known := start(0)
	assert.False(t, known, "the new folder is empty")
	require.NoError(t, fresh.Close())
}

// TestVersions: the server refuses and keeps a folder that another version made.
func TestVersions(t *testing.T) {
	dir := t.TempDir()
	srv, err := devserver.Start(t.Context(), dir, 0)
	require.NoError(t, err)
	require.NoError(t, srv.Close())
	require.NoError(t, os.WriteFile(filepath.Join(dir, "version"), []byte("1.2.3\n"), 0o600))
	_, err = devserver.Start(t.Context(), dir, 0)
	require.ErrorIs(t, err, devserver.ErrVersion)
	assert.ErrorContains(t, err, "version 1.2.3, and this server version "+headers.ServerVersion+": delete "+dir+", or use version 1.2.3")
	info, err := os.Stat(filepath.Join(dir, "temporal.db"))
	require.NoError(t, err)
	assert.Positive(t, info.Size())
}
