package local

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gofrs/flock"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const daemonWord = "__daemon"

// TestMain lets the test binary act as the daemon.
func TestMain(m *testing.M) {
	if len(os.Args) == 4 && os.Args[1] == daemonWord {
		idle, err := time.ParseDuration(os.Args[3])
		if err != nil {
			os.Exit(1)
		}
		ignoreLimit()
		os.Exit(Serve(os.Args[2], filepath.Join(os.Args[2], "state"), "test", idle))
	}
	os.Exit(m.Run())
}

func start(t *testing.T, dir, idle string) *Connection {
	t.Helper()
	c, err := Start(t.Context(), dir, daemonWord, dir, idle)
	require.NoError(t, err)
	return c
}

// TestStartAtOnce starts many daemons of one directory at once. Only one remains. The
// directory's path is longer than a socket's may be.
func TestStartAtOnce(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), strings.Repeat("long", 30))
	var wg sync.WaitGroup
	pids := make([]int, 8)
	for i := range pids {
		wg.Go(func() {
			c, err := Start(t.Context(), dir, daemonWord, dir, "1h")
			if assert.NoError(t, err) {
				pids[i] = c.Address.PID
				assert.NoError(t, c.Close())
			}
		})
	}
	wg.Wait()
	for _, pid := range pids {
		assert.Equal(t, pids[0], pid)
	}
	// No superfluous daemon remains that could replace it.
	if lines, err := filepath.Glob("/proc/[0-9]*/cmdline"); assert.NoError(t, err) && runtime.GOOS == "linux" {
		daemons := 0
		for _, name := range lines {
			if line, err := os.ReadFile(name); err == nil && strings.Contains(string(line), dir) {
				daemons++
			}
		}
		assert.Equal(t, 1, daemons)
	}
	require.NoError(t, Stop(t.Context(), dir))
	_, err := Use(t.Context(), dir)
	require.ErrorIs(t, err, ErrNone)
	require.ErrorIs(t, Stop(t.Context(), dir), ErrNone)
}

// TestIdle: a connection keeps a daemon running. It ends without one, and also if its
// directory is removed.
func TestIdle(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	t.Cleanup(func() { // wait for the lock: a daemon saves its state after it has stopped listening
		lock := flock.New(filepath.Join(dir, lockName))
		assert.Eventually(t, func() bool {
			locked, err := lock.TryLock()
			return err == nil && locked
		}, time.Minute, 20*time.Millisecond)
		_ = lock.Unlock() // with the end of the test
	})
	c := start(t, dir, "300ms")
	other := start(t, dir, "300ms")
	assert.False(t, other.Started)
	require.NoError(t, other.Close())
	gone := func() bool {
		resp, err := http.Get(c.Address.URL)
		if err == nil {
			resp.Body.Close()
		}
		return err != nil
	}
	require.Never(t, gone, time.Second, 100*time.Millisecond, "the daemon has a client")
	require.NoError(t, c.Close())
	require.Eventually(t, gone, time.Minute, 20*time.Millisecond)

	c = start(t, dir, "1s")
	assert.True(t, c.Started)
	require.NoError(t, c.Close())
	require.NoError(t, os.Remove(filepath.Join(dir, socketName)))
	require.Eventually(t, gone, time.Minute, 20*time.Millisecond)
}

// TestStranger: another user's socket, or a directory that others can enter, is not used.
func TestStranger(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, os.Chmod(dir, 0o755))
	c := start(t, dir, "1h")
	info, err := os.Stat(dir)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o700), info.Mode().Perm())
	log, err := os.ReadFile(filepath.Join(dir, LogName))
	require.NoError(t, err)
	assert.False(t, bytes.Contains(log, []byte(c.Address.Token)))
	require.NoError(t, c.Close())
	for _, words := range []string{"", "nonsense\n", "GET / HTTP/1.1\r\n\r\n"} {
		conn, err := net.Dial("unix", filepath.Join(dir, socketName))
		require.NoError(t, err)
		_, err = fmt.Fprint(conn, words)
		require.NoError(t, err)
		require.NoError(t, conn.(*net.UnixConn).CloseWrite())
		n, _ := conn.Read(make([]byte, 1))
		assert.Zero(t, n, "%q gets no data", words)
		require.NoError(t, conn.Close())
	}
	require.NoError(t, Stop(t.Context(), dir))

	link := filepath.Join(t.TempDir(), "link")
	require.NoError(t, os.Symlink(dir, link))
	_, err = Start(t.Context(), link, daemonWord, link, "1h")
	require.ErrorContains(t, err, "not a directory of this user")
	broken := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(broken, "state"), nil, 0o600))
	_, err = Start(t.Context(), broken, daemonWord, broken, "1h")
	require.ErrorContains(t, err, "did not start")
	assert.False(t, errors.Is(err, ErrNone))
}
