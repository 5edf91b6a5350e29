// Package sqlstore keeps the output of durable commands in a database, by
// database/sql. It was written for PostgreSQL and SQLite.
//
//	db, err := sql.Open("pgx", os.Getenv("DATABASE_URL"))
//	store, err := sqlstore.New(ctx, db)
//	session.Register(w, &durable.Worker{Client: sandboxes, Output: store})
//
// Databases are good at the outputs of most commands, and bad at gigabytes: what
// writes those belongs into S3 or on a volume.
package sqlstore

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"io"

	"github.com/go-vercel/sandbox/durable"
	"github.com/go-vercel/sandbox/durable/examples/stores/internal/spool"
)

// Objects are rows of parts. A version of an object has all of its parts, or, as
// they are written in one transaction, none.
const schema = `
CREATE TABLE IF NOT EXISTS sandbox_output (name TEXT PRIMARY KEY, version TEXT NOT NULL, parts INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS sandbox_output_part (name TEXT NOT NULL, version TEXT NOT NULL, n INTEGER NOT NULL, data BYTEA NOT NULL, PRIMARY KEY (name, version, n));`

// partSize is how much is in one row.
const partSize = 256 << 10

// Store is a durable.OutputStore.
type Store struct{ db *sql.DB }

// New returns a store in a database, and makes its tables when they are missing.
// The caller closes db.
func New(ctx context.Context, db *sql.DB) (*Store, error) {
	if _, err := db.ExecContext(ctx, schema); err != nil {
		return nil, fmt.Errorf("making the tables: %w", err)
	}
	return &Store{db}, nil
}

// Create writes to a temporary file, which Commit puts into the database in one
// transaction.
func (s *Store) Create(ctx context.Context, key string) (durable.OutputWriter, error) {
	if err := spool.CheckKey(key); err != nil {
		return nil, err
	}
	return spool.New(func(r io.Reader, _ int64) error {
		return s.inTx(ctx, func(tx *sql.Tx) error { return put(ctx, tx, key, r) })
	})
}

func (s *Store) inTx(ctx context.Context, do func(*sql.Tx) error) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err := do(tx); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

func put(ctx context.Context, tx *sql.Tx, key string, r io.Reader) error {
	version := rand.Text()
	buf := make([]byte, partSize)
	parts := 0
	for more := true; more; {
		n, err := io.ReadFull(r, buf)
		more = err == nil
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			return err
		}
		if n == 0 {
			break
		}
		if _, err := tx.ExecContext(ctx, `INSERT INTO sandbox_output_part (name, version, n, data) VALUES ($1, $2, $3, $4)`, key, version, parts, buf[:n]); err != nil {
			return err
		}
		parts++
	}
	// The row of the name makes writers of one key wait for each other.
	if _, err := tx.ExecContext(ctx, `INSERT INTO sandbox_output (name, version, parts) VALUES ($1, $2, $3)
		ON CONFLICT (name) DO UPDATE SET version = excluded.version, parts = excluded.parts`, key, version, parts); err != nil {
		return err
	}
	_, err := tx.ExecContext(ctx, `DELETE FROM sandbox_output_part WHERE name = $1 AND version <> $2`, key, version)
	return err
}

// Open reads an object part by part: a slow reader holds no connection.
func (s *Store) Open(ctx context.Context, key string) (io.ReadCloser, error) {
	if err := spool.CheckKey(key); err != nil {
		return nil, err
	}
	r := &reader{ctx: ctx, db: s.db, key: key}
	err := s.db.QueryRowContext(ctx, `SELECT version, parts FROM sandbox_output WHERE name = $1`, key).Scan(&r.version, &r.parts)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, spool.Missing(key)
	}
	return r, err
}

type reader struct {
	ctx          context.Context
	db           *sql.DB
	key, version string
	next, parts  int
	rest         []byte
}

func (r *reader) Read(p []byte) (int, error) {
	for len(r.rest) == 0 {
		if r.next == r.parts {
			return 0, io.EOF
		}
		err := r.db.QueryRowContext(r.ctx, `SELECT data FROM sandbox_output_part WHERE name = $1 AND version = $2 AND n = $3`, r.key, r.version, r.next).Scan(&r.rest)
		if errors.Is(err, sql.ErrNoRows) {
			return 0, fmt.Errorf("the output %q was replaced or removed while it was read", r.key)
		}
		if err != nil {
			return 0, err
		}
		r.next++
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

func (r *reader) Close() error { return nil }

// Remove removes the objects below a prefix. Neither LIKE nor a range of names
// would do: the case of letters and their order are the database's own.
func (s *Store) Remove(ctx context.Context, prefix string) error {
	if err := spool.CheckPrefix(prefix); err != nil {
		return err
	}
	return s.inTx(ctx, func(tx *sql.Tx) error {
		for _, query := range []string{
			`DELETE FROM sandbox_output_part WHERE substr(name, 1, $1) = $2`,
			`DELETE FROM sandbox_output WHERE substr(name, 1, $1) = $2`,
		} {
			if _, err := tx.ExecContext(ctx, query, len([]rune(prefix)), prefix); err != nil {
				return err
			}
		}
		return nil
	})
}
