package sqlstore_test

import (
	"database/sql"
	"path/filepath"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	_ "modernc.org/sqlite"

	"github.com/go-vercel/sandbox/durable/durabletest"
	"github.com/go-vercel/sandbox/durable/examples/stores/sqlstore"
)

func testStore(t *testing.T, driver, source string) {
	db, err := sql.Open(driver, source)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, db.Close()) })
	var store *sqlstore.Store
	for range 2 { // the tables may be there
		store, err = sqlstore.New(t.Context(), db)
		require.NoError(t, err)
	}
	t.Run("Conformance", func(t *testing.T) { durabletest.TestStore(t, store) })
	var rows int
	require.NoError(t, db.QueryRow(`SELECT (SELECT count(*) FROM sandbox_output) + (SELECT count(*) FROM sandbox_output_part)`).Scan(&rows))
	assert.Zero(t, rows, "nothing is left of what was replaced and removed")
}

func TestSQLite(t *testing.T) {
	t.Parallel()
	testStore(t, "sqlite", filepath.Join(t.TempDir(), "outputs.db")+"?_pragma=busy_timeout(10000)&_pragma=journal_mode(wal)")
}
