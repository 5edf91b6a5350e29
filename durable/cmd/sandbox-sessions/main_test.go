package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/sandboxtest"
)

// TestMain makes the test binary the emulator's process, as main does.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == emulatorArg {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		err := serveEmulator(ctx, os.Args[2])
		stop()
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// TestWithoutHome: without a home directory, the program does not use a folder that anybody
// could create. It refuses a folder that others can write to.
func TestWithoutHome(t *testing.T) {
	for _, name := range []string{"HOME", "XDG_CACHE_HOME", "LocalAppData", "TEMPORAL_ADDRESS"} {
		t.Setenv(name, "")
	}
	t.Setenv("TMPDIR", t.TempDir())
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // end everything that the program starts
	var said bytes.Buffer
	require.ErrorContains(t, run(ctx, []string{"-addr", "127.0.0.1:0"}, &said, io.Discard), "set HOME")
	assert.Empty(t, said.String())

	shared := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(shared, "token"), []byte("ATTACKERS\n"), 0o600))
	require.NoError(t, os.Chmod(shared, 0o777))
	require.ErrorContains(t, run(ctx, []string{"-addr", "127.0.0.1:0", "-dir", shared}, &said, io.Discard), "may be theirs")
	assert.Empty(t, said.String())
}

// TestTokens: all processes of a folder have one token, which nobody else can read.
func TestTokens(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	token := func() string {
		token, err := folderToken(dir)
		require.NoError(t, err)
		require.NotEmpty(t, token)
		return token
	}
	kept := token()
	assert.Equal(t, kept, token())
	file := filepath.Join(dir, "token")
	info, err := os.Stat(file)
	require.NoError(t, err)
	assert.Zero(t, info.Mode().Perm()&0o077)
}

// TestNoServer: without a Temporal server, the program says which one it tried and how to
// start one.
func TestNoServer(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	addr := l.Addr().String()
	require.NoError(t, l.Close())
	for _, kv := range append(os.Environ(), sandboxtest.New(t, nil).Environ()...) {
		if name, value, _ := strings.Cut(kv, "="); strings.HasPrefix(name, "TEMPORAL_") {
			t.Setenv(name, "")
		} else {
			t.Setenv(name, value)
		}
	}
	t.Setenv("TEMPORAL_ADDRESS", addr)
	var stdout, stderr bytes.Buffer
	err = run(t.Context(), []string{"-addr", "127.0.0.1:0", "-dir", t.TempDir()}, &stdout, &stderr)
	require.ErrorContains(t, err, "no Temporal server responds at "+addr+": start one with `temporal server start-dev --db-filename sessions.db`")
	assert.Contains(t, stderr.String(), "trusts the Temporal server at "+addr+", without TLS")
	assert.Empty(t, stdout.String())
}

// TestSharedEmulator: the processes of a folder share one emulator, which ends with the
// last of them.
func TestSharedEmulator(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "emulator")
	require.NoError(t, os.Mkdir(dir, 0o700))
	var all [3]*emulator
	var leave [3]func() error
	var starting sync.WaitGroup
	for i := range all {
		starting.Go(func() {
			assert.NoError(t, withLock(t.Context(), filepath.Dir(dir), func() (err error) {
				all[i], leave[i], err = joinEmulator(t.Context(), dir)
				return err
			}))
		})
	}
	starting.Wait()
	for i := range all {
		require.NotNil(t, all[i])
		assert.Equal(t, all[0].PID, all[i].PID)
		assert.True(t, all[i].alive(t.Context()))
		require.NoError(t, leave[i]())
	}
	assert.False(t, all[0].alive(t.Context()))
	assert.NoFileExists(t, filepath.Join(dir, emulatorFile))
}

// TestProcessAtEmulatorsPort: a process that listens at a killed emulator's port gets no
// request, because it cannot prove that it is the emulator.
func TestProcessAtEmulatorsPort(t *testing.T) {
	asked := 0
	stranger := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked++ }))
	defer stranger.Close()
	plain := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked++ }))
	defer plain.Close()
	dir := t.TempDir()
	first, err := startEmulator(t.Context(), dir)
	require.NoError(t, err)
	require.True(t, first.alive(t.Context()))
	p, err := os.FindProcess(first.PID)
	require.NoError(t, err)
	require.NoError(t, p.Kill())
	require.Eventually(t, func() bool { return !first.alive(t.Context()) }, time.Minute, 20*time.Millisecond)
	for _, at := range []string{stranger.URL, strings.Replace(plain.URL, "http:", "https:", 1)} {
		squatted := *first
		squatted.URL = at
		assert.False(t, squatted.alive(t.Context()), at)
	}
	assert.Zero(t, asked)
	second, err := startEmulator(t.Context(), dir)
	require.NoError(t, err)
	defer func() {
		assert.NoError(t, second.stop(context.Background(), dir))
		// The killed emulator's programs may still write.
		assert.Eventually(t, func() bool { return os.RemoveAll(dir) == nil }, time.Minute, 20*time.Millisecond)
	}()
	assert.NotEqual(t, first.Token, second.Token)
	assert.NotEqual(t, first.Key, second.Key)
}
