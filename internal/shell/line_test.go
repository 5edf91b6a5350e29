package shell

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// counted counts the writes of a connection.
type counted struct {
	net.Conn
	writes *atomic.Int64
}

func (c counted) Write(p []byte) (int, error) {
	c.writes.Add(1)
	return c.Conn.Write(p)
}

// TestMessageInOnePiece: a message of a terminal is one write, whatever its size.
func TestMessageInOnePiece(t *testing.T) {
	sizes := []int{1, 4096, 4096 - 8, 12<<10 - 8, bufferSize}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ws, err := websocket.Accept(w, r, nil)
		if !assert.NoError(t, err) {
			return
		}
		defer ws.CloseNow()
		_, _, err = ws.Read(r.Context()) // the start
		assert.NoError(t, err)
		for _, size := range sizes {
			_, data, err := ws.Read(r.Context())
			assert.NoError(t, err)
			assert.Len(t, data, size)
		}
		assert.NoError(t, ws.Write(r.Context(), websocket.MessageText, []byte(`{"type":"exit","code":0}`)))
		_ = ws.Close(websocket.StatusNormalClosure, "")
	}))
	defer srv.Close()
	var writes atomic.Int64
	transport := &http.Transport{DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, address)
		return counted{conn, &writes}, err
	}}
	defer transport.CloseIdleConnections()
	socket, err := Dial(t.Context(), transport, srv.URL, "token", false)
	require.NoError(t, err)
	c, err := Open(t.Context(), socket, &Start{}, func(err error, _ int, _ string) error { return err })
	require.NoError(t, err)
	defer c.Close()
	for _, size := range sizes {
		before := writes.Load()
		n, err := c.Write(make([]byte, size))
		require.NoError(t, err)
		assert.Equal(t, size, n)
		if size < bufferSize { // the reply to the close may follow the last one
			assert.EqualValues(t, 1, writes.Load()-before, size)
		}
	}
	_, err = c.Wait(t.Context())
	require.NoError(t, err)
}

// slow is a connection whose writes return the test's result when the test sends it.
type slow struct {
	io.ReadCloser
	begun chan []byte
	end   chan error
}

func (s *slow) Write(p []byte) (int, error) {
	s.begun <- append([]byte(nil), p...)
	return len(p), <-s.end
}

// TestLine: writes to a connection that is held or busy are sent in order, in one piece. A
// ping does not wait for a message, and does not write one. Each writer gets its own
// error.
func TestLine(t *testing.T) {
	type result struct {
		n   int
		err error
	}
	broken := errors.New("broken")
	start := func(t *testing.T) (s *slow, l *batchingConn, write func(string) chan result, message func(string) chan result) {
		s = &slow{begun: make(chan []byte), end: make(chan error)}
		l = newBatchingConn(s)
		write = func(text string) chan result {
			c := make(chan result, 1)
			go func() { n, err := l.Write([]byte(text)); c <- result{n, err} }()
			synctest.Wait()
			return c
		}
		message = func(text string) chan result {
			c := make(chan result, 1)
			go func() {
				l.hold()
				n := 0
				for _, b := range []byte(text) {
					k, _ := l.Write([]byte{b})
					n += k
				}
				c <- result{n, l.release()}
			}()
			synctest.Wait()
			return c
		}
		return s, l, write, message
	}
	const ping, pong, bye = "\x89\x00", "\x8a\x00", "\x88\x00"
	t.Run("pings during a message", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s, _, write, message := start(t)
			first := message("first")
			assert.Equal(t, "first", string(<-s.begun))
			assert.Equal(t, result{2, nil}, <-write(ping))
			assert.Equal(t, result{2, nil}, <-write(pong))
			second := message("second")
			s.end <- nil
			assert.Equal(t, ping+pong, string(<-s.begun))
			s.end <- broken
			assert.Equal(t, result{5, nil}, <-first, "it was written")
			assert.Equal(t, result{0, broken}, <-second)
			assert.Equal(t, result{0, broken}, <-write(ping))
		})
	})
	t.Run("a message during a ping", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s, _, write, message := start(t)
			assert.Equal(t, result{2, nil}, <-write(ping), "nobody waits for it")
			assert.Equal(t, ping, string(<-s.begun))
			first, second := message("first"), message("second")
			last := write(bye)
			assert.Equal(t, result{2, nil}, <-last)
			s.end <- nil
			assert.Equal(t, "first"+bye, string(<-s.begun))
			s.end <- nil
			assert.Equal(t, result{5, nil}, <-first)
			assert.Equal(t, "second", string(<-s.begun))
			s.end <- broken
			assert.Equal(t, result{6, broken}, <-second)
		})
	})
	t.Run("the end", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s, _, write, _ := start(t)
			last := write(bye)
			assert.Equal(t, bye, string(<-s.begun))
			assert.Empty(t, last, "the connection may be closed next")
			s.end <- nil
			assert.Equal(t, result{2, nil}, <-last)
		})
	})
	t.Run("endless pings", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s, l, write, message := start(t)
			first := message("first")
			<-s.begun
			n := 0
			for ; n <= maxWaiting; n += len(ping) {
				<-write(ping)
			}
			last := write(ping)
			assert.Empty(t, last, "it waits")
			s.end <- nil
			assert.Len(t, <-s.begun, n)
			assert.Equal(t, result{2, nil}, <-last)
			s.end <- nil
			<-s.begun
			s.end <- nil
			assert.Equal(t, result{5, nil}, <-first)
			assert.LessOrEqual(t, cap(l.waiting), 2*maxWaiting)
		})
	})
}

// stuck is a connection that stops accepting data at some point, until it is closed.
type stuck struct {
	net.Conn
	on            *atomic.Bool
	begun, closed chan struct{}
	once          *sync.Once
}

func (s stuck) Write(p []byte) (int, error) {
	if !s.on.Load() {
		return s.Conn.Write(p)
	}
	s.begun <- struct{}{}
	<-s.closed
	return 0, net.ErrClosed
}

func (s stuck) Close() error {
	s.once.Do(func() { close(s.closed) })
	return s.Conn.Close()
}

// TestWriteEnds: a message that the other end does not read ends with the connection.
func TestWriteEnds(t *testing.T) {
	for name, end := range map[string]func(c *Conn, cancel func()){
		"context": func(_ *Conn, cancel func()) { cancel() },
		"close":   func(c *Conn, _ func()) { c.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				ws, err := websocket.Accept(w, r, nil)
				if assert.NoError(t, err) {
					defer ws.CloseNow()
					_, _, _ = ws.Read(r.Context()) // the start
					_, _, _ = ws.Read(r.Context()) // waits until the other end has closed
				}
			}))
			defer srv.Close()
			s := stuck{on: new(atomic.Bool), begun: make(chan struct{}, 8), closed: make(chan struct{}), once: new(sync.Once)}
			transport := &http.Transport{DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
				conn, err := new(net.Dialer).DialContext(ctx, network, address)
				s.Conn = conn
				return s, err
			}}
			defer transport.CloseIdleConnections()
			socket, err := Dial(t.Context(), transport, srv.URL, "token", false)
			require.NoError(t, err)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			c, err := Open(ctx, socket, &Start{}, func(err error, _ int, _ string) error { return err })
			require.NoError(t, err)
			defer c.Close()
			s.on.Store(true)
			wrote := make(chan error, 1)
			go func() {
				_, err := c.Write([]byte("x"))
				wrote <- err
			}()
			<-s.begun
			end(c, cancel)
			require.Error(t, <-wrote)
		})
	}
}
