package limits_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-vercel/sandbox/internal/test/canned"
	"github.com/go-vercel/sandbox/internal/test/testkit"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/auth"
	"github.com/go-vercel/sandbox/internal/api"
)

// tlsServer is an API over TLS. A function of the test runs its commands.
type tlsServer struct {
	*httptest.Server
	connections atomic.Int64 // the number of accepted connections
	commands    atomic.Int64 // the number of started commands
	drain       int64        // the server drains a connection after this number of commands; never if 0
}

// newTLSServer starts a server with a file of N bytes at each path /N. It also runs
// commands. Their response is a stream of the command's record, the output of the function
// command, and the record of the exit.
func newTLSServer(t testing.TB, command func(ctx context.Context, w http.ResponseWriter, args []string), configure func(*httptest.Server)) *tlsServer {
	t.Helper()
	s := &tlsServer{}
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body struct {
			Path string
			Args []string
		}
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		switch {
		case strings.HasSuffix(r.URL.Path, "/cmd"):
			w.Header().Set("Content-Type", "application/x-ndjson")
			if n := s.commands.Add(1); s.drain > 0 && n%s.drain == 0 {
				w.Header().Set("Connection", "close") // over HTTP/2, this sends a GOAWAY
			}
			record := strings.Replace(canned.Command, "cmd_1", r.URL.Query().Get("cmdId"), 1) + "\n"
			fmt.Fprintf(w, record, "null")
			_ = http.NewResponseController(w).Flush() // tells the client the limit of streams
			command(r.Context(), w, body.Args)
			fmt.Fprintf(w, record, "0")
		case strings.HasSuffix(r.URL.Path, "/fs/read"):
			w.Header().Set("Content-Type", "application/octet-stream")
			n, _ := strconv.ParseInt(strings.TrimPrefix(body.Path, "/"), 10, 64)
			block := make([]byte, 1<<20)
			for ; n > 0; n -= int64(len(block)) {
				_, _ = w.Write(block[:min(n, int64(len(block)))])
			}
		default:
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"sandbox":`+canned.Sandbox+`,"session":`+canned.Session+`,"routes":[]}`, 0)
		}
	}))
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			s.connections.Add(1)
		}
	}
	s.Config.ErrorLog = log.New(io.Discard, "", 0) // don't log the handshakes that the client has abandoned
	s.EnableHTTP2 = true
	if configure != nil {
		configure(s.Server)
	}
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

// sandbox returns a sandbox whose client uses the default transport.
func (s *tlsServer) sandbox(t testing.TB, http2 bool) *sandbox.Sandbox {
	t.Helper()
	tr := api.DefaultTransport()
	tr.TLSClientConfig = s.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
	if !http2 {
		tr.ForceAttemptHTTP2 = false
		tr.TLSNextProto = map[string]func(string, *tls.Conn) http.RoundTripper{}
	}
	t.Cleanup(tr.CloseIdleConnections)
	c, err := sandbox.NewClient(&sandbox.ClientOptions{
		BaseURL: s.URL, HTTPClient: &http.Client{Transport: tr},
		Credentials: auth.Static(auth.Credentials{Token: "any", TeamID: "team", ProjectID: "project"}),
	})
	require.NoError(t, err)
	sb, err := c.Create(t.Context(), nil)
	require.NoError(t, err)
	return sb
}

// TestHTTP2CommandsAtOnce runs commands that wait for each other: 64 over one connection,
// and 250 over several, because the server allows 100 requests on each connection. This is
// also the limit that net/http assumes until the server reports its own. With a lower limit,
// net/http might first send too many requests, which would fail.
func TestHTTP2CommandsAtOnce(t *testing.T) {
	t.Parallel()
	connections := func(commands int64, limit int) int64 {
		var running atomic.Int64
		all := make(chan struct{})
		srv := newTLSServer(t, func(ctx context.Context, _ http.ResponseWriter, _ []string) {
			if running.Add(1) == commands {
				close(all)
			}
			select {
			case <-all:
			case <-ctx.Done():
			}
		}, func(s *httptest.Server) {
			s.Config.HTTP2 = &http.HTTP2Config{MaxConcurrentStreams: limit}
		})
		sb := srv.sandbox(t, true)
		ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
		defer cancel()
		var group sync.WaitGroup
		for range commands {
			group.Go(func() {
				_, err := sb.RunCommand(ctx, "wait", nil, nil)
				if ctx.Err() == nil && !assert.NoError(t, err) {
					cancel() // the other commands would wait for this one forever
				}
			})
		}
		group.Wait()
		assert.EqualValues(t, commands, running.Load())
		return srv.connections.Load()
	}
	assert.EqualValues(t, 1, connections(64, 0))
	made := connections(250, 100)
	t.Logf("%d connections", made)
	assert.GreaterOrEqual(t, made, int64(3))
}

// TestHTTP2SlowReader: a command whose output nobody reads does not block other commands
// on the same connection.
func TestHTTP2SlowReader(t *testing.T) {
	t.Parallel()
	const size, line = 8 << 20, 1 << 10
	record := `{"data":"` + strings.Repeat("x", line) + `","stream":"stdout"}` + "\n"
	srv := newTLSServer(t, func(_ context.Context, w http.ResponseWriter, args []string) {
		n, _ := strconv.Atoi(args[0])
		block := strings.Repeat(record, 64)
		for ; n > 0; n -= 64 * line {
			_, _ = io.WriteString(w, block)
		}
	}, nil)
	sb := srv.sandbox(t, true)
	run := func(size int, out io.Writer) {
		_, err := sb.RunCommand(t.Context(), "print", []string{strconv.Itoa(size)}, &sandbox.CommandOptions{Stdout: out})
		assert.NoError(t, err)
	}

	paused, resume := make(chan struct{}), make(chan struct{})
	slow := &pausedWriter{paused: paused, resume: resume}
	var group sync.WaitGroup
	group.Go(func() { run(size, slow) })
	<-paused
	var busy sync.WaitGroup
	for range 63 {
		busy.Go(func() {
			var out counter
			run(size/16, &out)
			assert.EqualValues(t, size/16, out)
		})
	}
	busy.Wait()
	close(resume)
	group.Wait()
	assert.EqualValues(t, size, slow.n)
	assert.EqualValues(t, 1, srv.connections.Load())
}

// counter is a writer that counts bytes.
type counter int64

func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}

// pausedWriter is a writer that blocks after its first write until the test resumes it.
type pausedWriter struct {
	n              counter
	once           sync.Once
	paused, resume chan struct{}
}

func (w *pausedWriter) Write(p []byte) (int, error) {
	w.once.Do(func() { close(w.paused) })
	<-w.resume
	return w.n.Write(p)
}

// TestHTTP2Draining: the server keeps draining its connections (GOAWAY) while 64
// goroutines run commands. Each command runs exactly once.
func TestHTTP2Draining(t *testing.T) {
	t.Parallel()
	const workers, each = 64, 4
	ran := make([]atomic.Int64, workers*each)
	srv := newTLSServer(t, func(_ context.Context, w http.ResponseWriter, args []string) {
		i, _ := strconv.Atoi(args[0])
		ran[i].Add(1)
		fmt.Fprintf(w, `{"data":"%d","stream":"stdout"}`+"\n", i)
	}, func(s *httptest.Server) { s.Listener = lingeringListener{s.Listener} })
	srv.drain = 16
	sb := srv.sandbox(t, true)
	var group sync.WaitGroup
	for w := range workers {
		group.Go(func() {
			for i := w * each; i < (w+1)*each; i++ {
				done, err := sb.RunCommand(t.Context(), "number", []string{strconv.Itoa(i)}, nil)
				if !assert.NoError(t, err) {
					return
				}
				out, err := done.Stdout(t.Context())
				assert.NoError(t, err)
				assert.Equal(t, strconv.Itoa(i), out)
			}
		})
	}
	group.Wait()
	for i := range ran {
		require.EqualValues(t, 1, ran[i].Load(), i)
	}
	assert.Greater(t, srv.connections.Load(), int64(10), "the server has drained no connections")
}

// lingeringListener is a listener whose connections only the client closes. The server of
// net/http closes a connection one second after the GOAWAY. On a busy machine, the client
// may not have read the GOAWAY by then. Its next write gets a reset, and it does not know
// the outcome of its requests.
type lingeringListener struct{ net.Listener }

func (l lingeringListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &lingeringConn{TCPConn: c.(*net.TCPConn)}, nil
}

type lingeringConn struct {
	*net.TCPConn
	once sync.Once
}

// Close closes only the direction to the client. The client closes the other one.
func (c *lingeringConn) Close() (err error) {
	c.once.Do(func() {
		err = c.CloseWrite()
		go func() {
			_, _ = io.Copy(io.Discard, c.TCPConn)
			c.TCPConn.Close()
		}()
	})
	return err
}

// protocols runs a benchmark over HTTP/2 and over HTTP/1.1.
func protocols(b *testing.B, f func(b *testing.B, http2 bool)) {
	b.Run("HTTP2", func(b *testing.B) { f(b, true) })
	b.Run("HTTP1", func(b *testing.B) { f(b, false) })
}

// BenchmarkCommandsAtOnce runs 64 short commands at a time: over one connection with
// HTTP/2, and over 64 with HTTP/1.1.
func BenchmarkCommandsAtOnce(b *testing.B) {
	protocols(b, func(b *testing.B, http2 bool) {
		srv := newTLSServer(b, func(_ context.Context, w http.ResponseWriter, _ []string) {
			time.Sleep(5 * time.Millisecond) //nolint:sleeping // the duration of the command
			_, _ = io.WriteString(w, `{"data":"hello\n","stream":"stdout"}`+"\n")
		}, nil)
		sb := srv.sandbox(b, http2)
		for b.Loop() {
			var group sync.WaitGroup
			for range 64 {
				group.Go(func() {
					_, err := sb.RunCommand(b.Context(), "hello", nil, nil)
					assert.NoError(b, err)
				})
			}
			group.Wait()
		}
		b.ReportMetric(float64(srv.connections.Load()), "connections")
	})
}

// BenchmarkDownload reads 256 MiB over TLS.
func BenchmarkDownload(b *testing.B) {
	protocols(b, func(b *testing.B, http2 bool) {
		const size = 256 << 20
		srv := newTLSServer(b, nil, nil)
		sb := srv.sandbox(b, http2)
		b.SetBytes(size)
		for b.Loop() {
			content, err := sb.FS().Open(b.Context(), "/"+strconv.Itoa(size), nil)
			require.NoError(b, err)
			n, err := io.Copy(io.Discard, content)
			require.NoError(b, err)
			require.EqualValues(b, size, n)
			require.NoError(b, content.Close())
		}
	})
}
