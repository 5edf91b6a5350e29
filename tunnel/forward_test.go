package tunnel

import (
	"context"
	"errors"
	"io"
	"net"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/internal/test/needs"
	"github.com/go-vercel/sandbox/internal/test/testkit"
)

// TestForward: EOF passes in both directions, failed connections are reported, and
// everything ends with the context.
func TestForward(t *testing.T) {
	t.Parallel()
	needs.Programs(t, "stty", "python3")
	_, sb, port := serverSandbox(t, &sandbox.CreateOptions{Env: sandbox.Env{"LOGNAME": uniqueLogname(t)}})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	serve := func(port int, reported chan error) (string, chan error) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		done := make(chan error, 1)
		go func() {
			done <- forward(ctx, l, func(ctx context.Context) (*Conn, error) { return dial(ctx, sb, port, allHelpers) },
				ForwardOptions{OnError: func(err error) { reported <- err }})
		}()
		return l.Addr().String(), done
	}
	address, done := serve(port, nil)
	local, err := net.Dial("tcp", address)
	require.NoError(t, err)
	defer local.Close()
	_, err = io.WriteString(local, "e"+strings.Repeat("x", 50_000))
	require.NoError(t, err)
	require.NoError(t, local.(*net.TCPConn).CloseWrite())
	back, err := io.ReadAll(local)
	require.NoError(t, err)
	assert.Equal(t, strings.Repeat("x", 50_000), string(back))

	reported := make(chan error, 1)
	nowhere, nothing := serve(1, reported)
	refused, err := net.Dial("tcp", nowhere)
	require.NoError(t, err)
	defer refused.Close()
	require.ErrorIs(t, <-reported, ErrRefused)
	_, err = refused.Read(make([]byte, 1))
	require.Error(t, err)

	open, err := net.Dial("tcp", address)
	require.NoError(t, err)
	defer open.Close()
	_, err = io.WriteString(open, "ehello")
	require.NoError(t, err)
	_, err = io.ReadFull(open, make([]byte, 5))
	require.NoError(t, err)
	processes := func() int { return len(testkit.ProcessesWith(t, "LOGNAME="+uniqueLogname(t))) }
	if runtime.GOOS == "linux" {
		require.Positive(t, processes(), "the helper")
	}
	cancel()
	require.NoError(t, <-done)
	require.NoError(t, <-nothing)
	_, err = open.Read(make([]byte, 1))
	require.Error(t, err)
	if runtime.GOOS == "linux" {
		assert.Eventually(t, func() bool { return processes() == 0 }, testkit.Patience, 50*time.Millisecond)
	}
}

// fixedListener is a listener that accepts the given connections and then fails.
type fixedListener struct {
	net.Listener
	conns []net.Conn
	err   error
}

func (l *fixedListener) Accept() (net.Conn, error) {
	if len(l.conns) == 0 {
		return nil, l.err
	}
	c := l.conns[0]
	l.conns = l.conns[1:]
	return c, nil
}

func (l *fixedListener) Close() error { return nil }

// TestAcceptFails: Forward returns a permanent error of Accept at once, and connections
// being established end.
func TestAcceptFails(t *testing.T) {
	t.Parallel()
	here, there := net.Pipe()
	defer there.Close()
	broken := errors.New("too many open files")
	err := forward(t.Context(), &fixedListener{conns: []net.Conn{here}, err: broken}, func(ctx context.Context) (*Conn, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}, ForwardOptions{OnError: func(err error) { t.Error(err) }})
	require.ErrorIs(t, err, broken)
	_, err = there.Read(make([]byte, 1))
	assert.Error(t, err, "the accepted connection is closed")
}

// TestManyDials: at most maxDials connections are established at a time. If the sandbox
// does not respond, each fails after dialTimeout.
func TestManyDials(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &fixedListener{err: io.EOF}
		const many = 3*maxDials + 1
		for range many {
			here, there := net.Pipe()
			defer there.Close()
			l.conns = append(l.conns, here)
		}
		allFailed := make(chan struct{})
		var mu sync.Mutex
		var dials, most, failed int
		began := time.Now()
		_ = forward(t.Context(), &blockingListener{l, allFailed}, func(ctx context.Context) (*Conn, error) {
			mu.Lock()
			dials++
			most = max(most, dials)
			mu.Unlock()
			<-ctx.Done()
			mu.Lock()
			defer mu.Unlock()
			dials--
			return nil, ctx.Err()
		}, ForwardOptions{OnError: func(err error) {
			assert.ErrorIs(t, err, context.DeadlineExceeded)
			mu.Lock()
			defer mu.Unlock()
			if failed++; failed == many {
				close(allFailed)
			}
		}})
		assert.Equal(t, maxDials, most)
		assert.Equal(t, many, failed)
		assert.Equal(t, 4*dialTimeout, time.Since(began))
	})
}

// blockingListener waits for release before it fails.
type blockingListener struct {
	*fixedListener
	release chan struct{}
}

func (l *blockingListener) Accept() (net.Conn, error) {
	c, err := l.fixedListener.Accept()
	if err != nil {
		<-l.release
	}
	return c, err
}

// TestJoinServerStopsReading: the response of a server that no longer reads arrives while
// the client still sends, and join notices the end of the local connection.
func TestJoinServerStopsReading(t *testing.T) {
	t.Parallel()
	here, there := net.Pipe()
	defer here.Close()
	c, helper := fakeHelper(t)
	var joined sync.WaitGroup
	joined.Go(func() { join(t.Context(), there, c) })
	_, err := io.WriteString(helper, firstConnFrame(frameWriteClosed, ""))
	require.NoError(t, err)
	joined.Go(func() { _, _ = io.Copy(io.Discard, helper) })
	for range 3 {
		_, err = here.Write(make([]byte, 3*maxData))
		require.NoError(t, err)
	}
	_, err = io.WriteString(helper, firstConnFrame(frameData, "answer"))
	require.NoError(t, err)
	answer := make([]byte, 6)
	_, err = io.ReadFull(here, answer)
	require.NoError(t, err)
	assert.Equal(t, "answer", string(answer))
	require.NoError(t, here.Close())
	_ = helper.Close()
	joined.Wait()
}

// resetConn is a connection that its peer has reset.
type resetConn struct{ net.Conn }

func (resetConn) Read([]byte) (int, error) { return 0, syscall.ECONNRESET }

// TestJoinReset: the local connection breaks while the sandbox sends nothing.
func TestJoinReset(t *testing.T) {
	t.Parallel()
	here, there := net.Pipe()
	defer here.Close()
	c, helper := fakeHelper(t)
	go func() { _, _ = io.Copy(io.Discard, helper) }()
	join(t.Context(), resetConn{there}, c)
	_, err := c.Read(make([]byte, 1))
	require.ErrorIs(t, err, net.ErrClosed)
}

// TestJoinFillsMessages: data goes to the sandbox in messages of the maximum size.
func TestJoinFillsMessages(t *testing.T) {
	t.Parallel()
	here, there := net.Pipe()
	defer here.Close()
	c, helper := fakeHelper(t)
	var joined sync.WaitGroup
	joined.Go(func() { join(t.Context(), there, c) })
	joined.Go(func() { _, _ = here.Write(make([]byte, 3*maxData)) })
	for range 3 {
		n, err := helper.Read(make([]byte, 1<<20)) // returns the data of one Write
		assert.NoError(t, err)
		assert.Equal(t, 32<<10, n)
	}
	_ = helper.Close()
	_ = here.Close()
	joined.Wait()
}

// fakeHelper returns a connection and the other end of its terminal.
func fakeHelper(t *testing.T) (*Conn, net.Conn) {
	here, there := net.Pipe()
	c, err := newLink(here, func(error) {}, nil).add(addr{"web", 80})
	require.NoError(t, err)
	c.ownsLink = true
	t.Cleanup(func() {
		_ = there.Close()
		_ = c.Close()
	})
	return c, there
}

// TestHostileHelper: whatever a sandbox sends instead of frames, a connection fails and
// uses no more memory than a frame.
func TestHostileHelper(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, sent, read string
		err              error
		text             string
	}{
		{"nothing", "", "", io.ErrUnexpectedEOF, ""},
		{"half a head", firstConnFrame(frameData, "abc")[:3], "", io.ErrUnexpectedEOF, ""},
		{"half a frame", firstConnFrame(frameData, "abc")[:8], "", io.ErrUnexpectedEOF, ""},
		{"no data at all", firstConnFrame(frameData, "abc")[:7], "", io.ErrUnexpectedEOF, ""},
		{"a kind that there is not", firstConnFrame(frameData, "ab") + firstConnFrame('\x1b', ""), "ab", nil, `sent '\x1b' with 0 bytes`},
		{"an end with data", firstConnFrame(frameData, "ab") + firstConnFrame(frameEOF, "x"), "ab", nil, `sent 'e' with 1 bytes`},
		{"a frame for the sandbox", firstConnFrame(frameQuit, ""), "", nil, `sent 'q' with 0 bytes`},
		{"empty data", firstConnFrame(frameData, "") + firstConnFrame(frameData, "a"), "a", io.ErrUnexpectedEOF, ""},
		{"a reset", firstConnFrame(frameData, "a") + firstConnFrame(frameReset, ""), "a", syscall.ECONNRESET, ""},
		{"data after the end", firstConnFrame(frameData, "a") + firstConnFrame(frameEOF, "") + firstConnFrame(frameData, "b"), "a", nil, ""},
		{"the largest", firstConnFrame(frameData, strings.Repeat("y", 65535)) + firstConnFrame(frameEOF, ""), strings.Repeat("y", 65535), nil, ""},
		{"of another connection", "d\x00\x00\x00\x02\x00\x01x" + firstConnFrame(frameData, "a"), "a", io.ErrUnexpectedEOF, ""},
		{"much to send", strings.Repeat(firstConnFrame(frameCredit, "\xff\xff\xff\xff"), 100) + firstConnFrame(frameEOF, ""), "", nil, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			c, helper := fakeHelper(t)
			go func() {
				_, _ = io.WriteString(helper, test.sent)
				_ = helper.Close()
			}()
			got, err := io.ReadAll(c)
			assert.Equal(t, test.read, string(got))
			switch {
			case test.err != nil:
				require.ErrorIs(t, err, test.err)
			case test.text != "":
				require.ErrorContains(t, err, test.text)
			default:
				require.NoError(t, err)
			}
		})
	}
}

// TestTooMuch: if a sandbox sends more than its credit, all connections fail.
func TestTooMuch(t *testing.T) {
	t.Parallel()
	c, helper := fakeHelper(t)
	go func() {
		for err := error(nil); err == nil; {
			_, err = io.WriteString(helper, firstConnFrame(frameData, strings.Repeat("x", 60_000)))
		}
	}()
	require.Eventually(t, func() bool { return !c.link.alive() }, testkit.Patience, time.Millisecond)
	got, err := io.ReadAll(c)
	require.ErrorContains(t, err, "more than its credit")
	assert.LessOrEqual(t, len(got), firstWindow)
}

// TestCloseLingers: Close waits until the helper has delivered what was written, up to
// closeTimeout.
func TestCloseLingers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		for _, ends := range []bool{true, false} {
			c, helper := fakeHelper(t)
			_, err := c.Write([]byte("last words"))
			require.NoError(t, err)
			closed := make(chan struct{})
			go func() {
				defer close(closed)
				_ = c.Close()
			}()
			want := firstConnFrame(frameData, "last words") + firstConnFrame(frameClose, "")
			got := make([]byte, len(want))
			_, err = io.ReadFull(helper, got)
			require.NoError(t, err)
			assert.Equal(t, want, string(got))
			synctest.Wait()
			select {
			case <-closed:
				t.Fatal("Close did not wait for the helper")
			default:
			}
			if ends {
				_, err = io.WriteString(helper, firstConnFrame(frameClose, ""))
				require.NoError(t, err)
				_, err = io.ReadFull(helper, got[:headerSize])
				require.NoError(t, err)
				assert.Equal(t, string(appendFrame(nil, frameQuit, 0, nil)), string(got[:headerSize]))
				require.NoError(t, helper.Close())
			}
			<-closed
			if ends {
				assert.Zero(t, time.Since(began))
			}
		}
		assert.Equal(t, closeTimeout, time.Since(began))
	})
}
