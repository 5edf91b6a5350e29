package embedded_test

import (
	"database/sql"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"

	"github.com/go-vercel/sandbox/durable/embedded"
)

// TestCompact: what sessions have left that are gone does not stay in the folder: the
// next start gives the room back, and nothing else changes.
func TestCompact(t *testing.T) {
	dir := t.TempDir()
	start := func() {
		t.Helper()
		srv, err := embedded.Start(t.Context(), &embedded.Options{Dir: dir, Logger: slog.New(slog.NewTextHandler(t.Output(), nil))})
		require.NoError(t, err)
		defer func() { assert.NoError(t, srv.Close()) }()
		c, err := srv.Dial(t.Context(), client.Options{Logger: quiet})
		require.NoError(t, err)
		defer c.Close()
		_, err = c.CheckHealth(t.Context(), nil)
		require.NoError(t, err)
	}
	file := filepath.Join(dir, "temporal.db")
	size := func() int64 {
		info, err := os.Stat(file)
		require.NoError(t, err)
		return info.Size()
	}
	start()
	before := size()
	db, err := sql.Open("sqlite", file)
	require.NoError(t, err)
	for _, statement := range []string{"CREATE TABLE left_over (data BLOB)", "INSERT INTO left_over VALUES (zeroblob(20000000))", "DROP TABLE left_over"} {
		_, err = db.Exec(statement)
		require.NoError(t, err)
	}
	require.NoError(t, db.Close())
	require.Greater(t, size(), before+19_000_000)
	start()
	assert.Less(t, size(), before+4_000_000)
}
