package tunnel

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/internal/test/needs"
	"github.com/go-vercel/sandbox/internal/test/testkit"
	"github.com/go-vercel/sandbox/sandboxtest"
	"github.com/go-vercel/sandbox/terminal"
)

// TestDialer: many concurrent connections over one terminal. Each gets its own bytes and
// its own EOF, even if another connection is not read.
func TestDialer(t *testing.T) {
	t.Parallel()
	for _, i := range interpreters {
		t.Run(i.name, func(t *testing.T) {
			t.Parallel()
			needs.Programs(t, "stty", i.name)
			srv, sb, port := serverSandbox(t, &sandbox.CreateOptions{Env: sandbox.Env{"LOGNAME": uniqueLogname(t)}})
			d := newDialer(sb, i.helpers)
			defer d.Close()
			terminals := func() int { return testkit.Count(srv, sandboxtest.OpenInteractive) }
			connect := func(what string) *Conn {
				c, err := d.Dial(t.Context(), port)
				require.NoError(t, err)
				t.Cleanup(func() { c.Close() })
				require.NoError(t, c.SetDeadline(time.Now().Add(testkit.Patience)))
				_, err = io.WriteString(c, what)
				require.NoError(t, err)
				return c
			}
			unread := connect("e") // this end reads less than the server echoes
			require.NoError(t, unread.SetWriteDeadline(time.Time{}))
			var stalled sync.WaitGroup
			stalled.Go(func() { _, _ = unread.Write(make([]byte, 16<<20)) })
			_, err := d.Dial(t.Context(), 1)
			require.ErrorIs(t, err, ErrRefused)

			many := 200
			if !needs.Slow() {
				many = 8
			}
			var conns []*Conn
			for range many {
				conns = append(conns, connect("e"))
			}
			var talking sync.WaitGroup
			for n, c := range conns {
				talking.Go(func() {
					data := bytes.Repeat([]byte{byte(n), byte(n >> 8), 1}, 20_000)
					talking.Go(func() {
						_, err := c.Write(data)
						assert.NoError(t, err)
						assert.NoError(t, c.CloseWrite())
					})
					got := make([]byte, len(data))
					_, err := io.ReadFull(c, got)
					assert.NoError(t, err)
					assert.True(t, bytes.Equal(data, got))
					_, err = c.Read(got)
					assert.ErrorIs(t, err, io.EOF)
					assert.NoError(t, c.Close())
				})
			}
			talking.Wait()
			unread.abort()
			stalled.Wait()
			assert.Equal(t, 1, terminals())
			assert.Eventually(t, func() bool { d.link.mu.Lock(); defer d.link.mu.Unlock(); return len(d.link.conns) == 0 }, testkit.Patience, time.Millisecond)

			lost := []*Conn{connect("e"), connect("e")}
			_, err = sb.Stop(t.Context(), nil)
			require.NoError(t, err)
			for _, c := range lost {
				_, err := io.ReadAll(c)
				var end *terminal.ShellError
				require.ErrorAs(t, err, &end)
				_, err = c.Write([]byte("x"))
				require.ErrorAs(t, err, &end)
			}
			_, err = d.Dial(t.Context(), port)
			require.ErrorIs(t, err, ErrRefused, "Dial resumes the sandbox, in which no server runs")
			assert.Equal(t, 3, terminals(), "one of the requests was to the session that had stopped")

			ended, cancel := context.WithCancel(t.Context())
			cancel()
			_, err = d.Dial(ended, port)
			require.ErrorIs(t, err, context.Canceled)
			require.NoError(t, d.Close())
			_, err = d.Dial(t.Context(), port)
			require.ErrorIs(t, err, net.ErrClosed)
			if runtime.GOOS == "linux" {
				assert.Eventually(t, func() bool { return len(testkit.ProcessesWith(t, "LOGNAME="+uniqueLogname(t))) == 0 }, testkit.Patience, 50*time.Millisecond)
			}
		})
	}
	_, err := NewDialer(nil).Dial(t.Context(), 1)
	require.ErrorIs(t, err, sandbox.ErrInvalid)
	_, err = new(Dialer).Dial(t.Context(), 1)
	require.ErrorIs(t, err, sandbox.ErrInvalid)
	require.ErrorIs(t, new(Dialer).Close(), sandbox.ErrInvalid)
}

// TestHelperDies: a helper that exits at each connection is started once per connection.
func TestHelperDies(t *testing.T) {
	t.Parallel()
	needs.Programs(t, "stty", "python3")
	srv, sb := testkit.LightStart(t, nil)
	d := newDialer(sb, helpers{python: `import os; os.write(1, b"\x01sandbox-tunnel-ready\x02"); os.read(0, 7)`})
	defer d.Close()
	for n := range 2 {
		_, err := d.Dial(t.Context(), 1)
		var lost *terminal.ShellError
		require.ErrorAs(t, err, &lost)
		assert.Equal(t, n+1, testkit.Count(srv, sandboxtest.OpenInteractive))
	}
}

// TestManyConnections makes 10,000 connections, 200 at a time. Each gets the right bytes,
// and none remains.
func TestManyConnections(t *testing.T) {
	needs.Long(t, "makes 10,000 connections by each helper")
	for _, i := range interpreters {
		t.Run(i.name, func(t *testing.T) {
			needs.Programs(t, "stty", i.name)
			_, sb, port := serverSandbox(t, nil)
			d := newDialer(sb, i.helpers)
			defer d.Close()
			began := time.Now()
			var next, took atomic.Int64
			var group sync.WaitGroup
			for range 200 {
				group.Go(func() {
					for n := next.Add(1); n <= 10_000; n = next.Add(1) {
						dialed := time.Now()
						c, err := d.Dial(t.Context(), port)
						if !assert.NoError(t, err) {
							return
						}
						took.Add(int64(time.Since(dialed)))
						want := fmt.Sprintf("%d %s", n, strings.Repeat("x", int(n%5000)))
						_, err = io.WriteString(c, "e"+want)
						got := make([]byte, len(want))
						_, readErr := io.ReadFull(c, got)
						assert.NoError(t, errors.Join(err, readErr, c.Close()))
						assert.Equal(t, want, string(got))
					}
				})
			}
			group.Wait()
			t.Logf("%v; a dial of 200 at once took %v", time.Since(began), time.Duration(took.Load()/10_000))
			d.link.mu.Lock()
			assert.Empty(t, d.link.conns)
			d.link.mu.Unlock()
			began = time.Now()
			for range 100 {
				c, err := d.Dial(t.Context(), port)
				require.NoError(t, err)
				took.Add(int64(time.Since(began)))
				c.abort()
			}
			t.Logf("one after the other, a dial took %v", time.Since(began)/100)
		})
	}
}

// TestAcceptTemporaryError: Forward reports a temporary error of Accept and continues.
func TestAcceptTemporaryError(t *testing.T) {
	t.Parallel()
	l := &failingListener{errs: []error{&net.OpError{Op: "accept", Err: syscall.EMFILE}, &net.OpError{Op: "accept", Err: syscall.ECONNABORTED}, net.ErrClosed}}
	var reported []error
	err := forward(t.Context(), l, nil, ForwardOptions{OnError: func(err error) { reported = append(reported, err) }})
	require.ErrorIs(t, err, net.ErrClosed)
	require.Len(t, reported, 2)
	require.ErrorIs(t, reported[0], syscall.EMFILE)
}

// failingListener is a listener whose Accept returns the given errors.
type failingListener struct {
	net.Listener
	errs []error
}

func (l *failingListener) Accept() (net.Conn, error) {
	err := l.errs[0]
	l.errs = l.errs[1:]
	return nil, err
}

func (l *failingListener) Close() error { return nil }

// TestEmptyReadAndWrite: an empty Read or Write returns at once, as in a net.TCPConn.
func TestEmptyReadAndWrite(t *testing.T) {
	t.Parallel()
	c, _ := fakeHelper(t)
	n, err := c.Read(nil)
	require.NoError(t, err)
	assert.Zero(t, n)
	n, err = c.Write(nil) // sends nothing; it would block otherwise, because nobody reads
	require.NoError(t, err)
	assert.Zero(t, n)
}

// TestConnectionExtendsSession: a session outlives its timeout while a connection is open,
// and ends after the last one.
func TestConnectionExtendsSession(t *testing.T) {
	t.Parallel()
	needs.Programs(t, "stty", "python3")
	srv, sb, port := serverSandbox(t, &sandbox.CreateOptions{Timeout: 5 * time.Minute})
	session := sb.CurrentSession()
	d := NewDialer(sb)
	defer d.Close()
	c, err := d.Dial(t.Context(), port)
	require.NoError(t, err)
	for range 10 { // in steps that are shorter than the margin of a minute
		srv.Advance(45 * time.Second)
		_, err := sb.ListCommands(t.Context()) // any response carries the time
		require.NoError(t, err)
		require.Eventually(t, func() bool { return session.TimeLeft() > time.Minute }, testkit.Patience, time.Millisecond)
	}
	_, err = io.WriteString(c, "estill there")
	require.NoError(t, err)
	got := make([]byte, len("still there"))
	_, err = io.ReadFull(c, got)
	require.NoError(t, err)
	assert.Equal(t, "still there", string(got))
	extensions := testkit.Count(srv, sandboxtest.ExtendTimeout)
	assert.LessOrEqual(t, extensions, 3)
	require.NoError(t, c.Close())
	srv.Advance(20 * time.Minute)
	require.Eventually(t, func() bool {
		return session.Refresh(t.Context()) == nil && session.Info().Status == sandbox.StatusStopped
	}, testkit.Patience, time.Millisecond)
	assert.Equal(t, extensions, testkit.Count(srv, sandboxtest.ExtendTimeout))
}
