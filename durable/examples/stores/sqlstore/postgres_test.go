//go:build unix

package sqlstore_test

import (
	"database/sql"
	"errors"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/internal/test/needs"
)

// TestPostgres runs the server that is installed, or uses that of
// SANDBOX_TEST_POSTGRES, the address of an empty database.
func TestPostgres(t *testing.T) {
	t.Parallel()
	source := os.Getenv("SANDBOX_TEST_POSTGRES")
	if source == "" {
		source = startPostgres(t)
	}
	testStore(t, "pgx", source)
}

// startPostgres starts a server of its own, in a folder, and returns its address.
func startPostgres(t *testing.T) string {
	bin := ""
	if found, err := filepath.Glob("/usr/lib/postgresql/*/bin"); err == nil && len(found) > 0 {
		bin = found[len(found)-1] + "/"
	} else {
		needs.Programs(t, "initdb", "postgres")
	}
	// It refuses to run as root, and another user can't enter the test's folder.
	dir, err := os.MkdirTemp("", "pg") //nolint:usetesting // see above
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, os.RemoveAll(dir)) })
	attr := &syscall.SysProcAttr{}
	if os.Getuid() == 0 {
		nobody, err := user.Lookup("nobody")
		if err != nil {
			needs.Missing(t, "a user who is not root: %v", err)
		}
		uid, _ := strconv.Atoi(nobody.Uid)
		gid, _ := strconv.Atoi(nobody.Gid)
		attr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
		require.NoError(t, os.Chown(dir, uid, gid))
	}
	data := filepath.Join(dir, "data")
	initdb := exec.Command(bin+"initdb", "-D", data, "-U", "test", "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8", "--no-sync")
	initdb.SysProcAttr, initdb.Dir = attr, dir
	out, err := initdb.CombinedOutput()
	require.NoError(t, err, "%s", out)
	// No port: a socket in the folder.
	srv := exec.Command(bin+"postgres", "-D", data, "-k", dir, "-h", "", "-F")
	srv.SysProcAttr, srv.Dir = attr, dir
	log, err := os.Create(filepath.Join(dir, "log"))
	require.NoError(t, err)
	defer log.Close()
	srv.Stdout, srv.Stderr = log, log
	require.NoError(t, srv.Start())
	ended := make(chan error, 1)
	go func() { ended <- srv.Wait() }()
	t.Cleanup(func() {
		_ = srv.Process.Signal(os.Interrupt)
		<-ended
	})
	source := "host=" + dir + " user=test dbname=postgres sslmode=disable"
	db, err := sql.Open("pgx", source)
	require.NoError(t, err)
	defer db.Close()
	require.Eventually(t, func() bool {
		select {
		case err := <-ended:
			ended <- err
			text, _ := os.ReadFile(log.Name())
			require.NoError(t, errors.Join(err, errors.New("the server has ended")), "%s", text)
		default:
		}
		return db.PingContext(t.Context()) == nil
	}, time.Minute, 50*time.Millisecond)
	return source
}
