package embedded

import (
	"database/sql"
	"errors"
	"fmt"
)

// emptyPart of a database's file may be empty, and emptyBytes, before it is made
// smaller: sessions whose retention has ended leave room that only new ones use.
const (
	emptyPart  = 4 // a quarter
	emptyBytes = 8 << 20
)

// compact makes the file of a database that nobody uses smaller if much of it is
// empty. It takes about a second for each 100 MiB that are left.
func compact(file string) (err error) {
	db, err := sql.Open("sqlite", file) // the driver of the server's plugin
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	db.SetMaxOpenConns(1)
	var pages, empty, size int64
	for pragma, value := range map[string]*int64{"page_count": &pages, "freelist_count": &empty, "page_size": &size} {
		if err := db.QueryRow("PRAGMA " + pragma).Scan(value); err != nil {
			return fmt.Errorf("%s: %w", pragma, err)
		}
	}
	if empty*emptyPart < pages || empty*size < emptyBytes {
		return nil
	}
	if _, err := db.Exec("VACUUM"); err != nil {
		return err
	}
	return checkpoint(file)
}

// checkpoint puts into the file of a database what is beside it.
func checkpoint(file string) (err error) {
	db, err := sql.Open("sqlite", file)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	_, err = db.Exec("PRAGMA wal_checkpoint(TRUNCATE)")
	return err
}
