package embedded

import (
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"go.temporal.io/server/common/headers"
	"go.temporal.io/server/common/persistence/sql/sqlplugin"
	"go.temporal.io/server/schema/sqlite"
)

// checkVersion refuses a folder that this version of the server can't take along.
// Nothing changes tables, so that they have to be the same.
func checkVersion(dir, database string) error {
	file := filepath.Join(dir, "version")
	text, err := os.ReadFile(file)
	had := strings.TrimSpace(string(text))
	switch {
	case errors.Is(err, os.ErrNotExist):
	case err != nil:
		return err
	case had == headers.ServerVersion:
		return nil
	case !follows(headers.ServerVersion, had) || !sameTables(database):
		return fmt.Errorf("%w: %s, which this one, %s, does not follow on: destroy its sessions with a program of that version, or begin with another folder than %s",
			ErrVersion, had, headers.ServerVersion, dir)
	}
	return os.WriteFile(file, []byte(headers.ServerVersion+"\n"), 0o600)
}

// follows reports whether a version of the server takes along what an earlier one has
// left: Temporal wants no minor version to be left out.
func follows(version, earlier string) bool {
	var now, had [3]int
	for text, n := range map[string]*[3]int{version: &now, earlier: &had} {
		if _, err := fmt.Sscanf(text, "%d.%d.%d", &n[0], &n[1], &n[2]); err != nil {
			return false
		}
	}
	return now[0] == had[0] && (now[1] == had[1] && now[2] >= had[2] || now[1] == had[1]+1)
}

// sameTables reports whether a database has the tables that this version makes.
func sameTables(file string) bool {
	there, err := sql.Open("sqlite", "file:"+file+"?mode=ro")
	if err != nil {
		return false
	}
	defer there.Close()
	made, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		return false
	}
	defer made.Close()
	made.SetMaxOpenConns(1) // each has a database of its own
	if err := sqlite.SetupSchemaOnDB(tables{db: made}); err != nil {
		return false
	}
	want, err := schema(made)
	if err != nil {
		return false
	}
	got, err := schema(there)
	return err == nil && got == want
}

func schema(db *sql.DB) (text string, err error) {
	return text, db.QueryRow("SELECT group_concat(sql, ';') FROM (SELECT sql FROM sqlite_master ORDER BY type, name)").Scan(&text)
}

// tables is a database for the statements that make Temporal's tables.
type tables struct {
	sqlplugin.AdminDB
	db *sql.DB
}

func (t tables) Exec(statement string, args ...any) error {
	_, err := t.db.Exec(statement, args...)
	return err
}
