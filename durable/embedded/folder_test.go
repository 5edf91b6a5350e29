package embedded_test

import (
	"database/sql"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"go.temporal.io/server/common/headers"

	"github.com/go-vercel/sandbox/durable/embedded"
)

// TestFolder: a folder serves one server at a time, from one start to the
// next.
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
}

// TestVersions: a folder of a version of the server that this one follows on is taken
// along with what it has; another one is refused, with a word of what to do, and kept.
func TestVersions(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "version")
	// start starts a server in the folder as if that were of a version.
	start := func(version string, play func(c client.Client)) error {
		if version != "" {
			require.NoError(t, os.WriteFile(file, []byte(version+"\n"), 0o600))
		}
		srv, err := embedded.Start(t.Context(), &embedded.Options{Dir: dir})
		if err != nil {
			return err
		}
		defer func() { assert.NoError(t, srv.Close()) }()
		c, err := srv.Dial(t.Context(), client.Options{Logger: quiet})
		require.NoError(t, err)
		defer c.Close()
		play(c)
		return nil
	}
	require.NoError(t, start("", func(c client.Client) {
		_, err := c.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{ID: "waits", TaskQueue: "nobody"}, "none")
		require.NoError(t, err)
	}))
	var major, minor, patch int
	_, err := fmt.Sscanf(headers.ServerVersion, "%d.%d.%d", &major, &minor, &patch)
	require.NoError(t, err)
	version := func(minor, patch int) string { return fmt.Sprintf("%d.%d.%d", major, minor, patch) }
	require.NoError(t, start(version(minor-1, 99), func(c client.Client) {
		_, err := c.DescribeWorkflowExecution(t.Context(), "waits", "")
		require.NoError(t, err)
	}))
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.Equal(t, headers.ServerVersion+"\n", string(text))

	refused := func(version string) {
		t.Helper()
		err := start(version, nil)
		require.ErrorIs(t, err, embedded.ErrVersion)
		assert.ErrorContains(t, err, "destroy its sessions with a program of that version, or begin with another folder than "+dir)
	}
	for _, version := range []string{version(minor-2, 9), version(minor, patch+1), version(minor+1, 0), fmt.Sprintf("%d.%d.0", major+1, minor), "unknown"} {
		refused(version)
	}
	database := filepath.Join(dir, "temporal.db")
	db, err := sql.Open("sqlite", database)
	require.NoError(t, err)
	_, err = db.Exec("ALTER TABLE namespaces ADD COLUMN later INT")
	require.NoError(t, err)
	require.NoError(t, db.Close())
	refused(version(minor-1, 99)) // has other tables
	if info, err := os.Stat(database); assert.NoError(t, err) {
		assert.Positive(t, info.Size(), "what is there is kept")
	}
}
