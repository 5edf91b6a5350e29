//go:build linux

package terminal_test

import (
	"context"
	"crypto/sha1" // required for the handshake of RFC 6455
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-vercel/sandbox/internal/test/canned"
	"github.com/go-vercel/sandbox/internal/test/testkit"

	"github.com/coder/websocket"
	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/auth"
	"github.com/go-vercel/sandbox/terminal"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// These tests cover broken, silent, refused and hostile connections.

// relay forwards connections to the emulator until they are cut.
type relay struct {
	net.Listener
	mu    sync.Mutex
	conns []net.Conn
	group sync.WaitGroup
}

func newRelay(t *testing.T, to string) *relay {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	r := &relay{Listener: l}
	r.group.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", to)
			if err != nil {
				in.Close()
				continue
			}
			r.mu.Lock()
			r.conns = append(r.conns, in, out)
			r.mu.Unlock()
			r.group.Go(func() { r.pass(in, out) })
			r.group.Go(func() { r.pass(out, in) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		r.cut()
		r.group.Wait()
	})
	return r
}

func (r *relay) pass(to, from net.Conn) {
	_, _ = io.Copy(to, from)
	to.Close()
}

func (r *relay) cut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.conns {
		c.Close()
	}
}

// relayedSandbox returns a sandbox whose terminals are reached through a relay.
func relayedSandbox(t *testing.T) (*sandbox.Sandbox, *relay) {
	srv, sb := testkit.LightStart(t, nil)
	host := strings.TrimSuffix(strings.TrimPrefix(srv.URL, "http://"), "/api")
	r := newRelay(t, host)
	tr := testkit.Transport(t)
	tr.DialContext = func(ctx context.Context, network, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, network, r.Addr().String())
	}
	testkit.Client(t, srv, sandbox.ClientOptions{HTTPClient: &http.Client{Transport: tr}}).Bind(sb)
	return sb, r
}

// TestShellLost: Read, Write and Wait fail after the connection was cut.
func TestShellLost(t *testing.T) {
	t.Parallel()
	sb, r := relayedSandbox(t)
	x := openScreen(t, sb, bash())
	x.until("ready> ")
	r.cut()
	assertLost(t, sb, x)
}

func assertLost(t *testing.T, sb *sandbox.Sandbox, x *screen) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
	defer cancel()
	_, err := x.Wait(ctx)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	_, ok := errors.AsType[*terminal.ShellError](err)
	require.True(t, ok)
	assert.ErrorContains(t, err, "in session "+sb.CurrentSession().ID())
	require.ErrorIs(t, <-x.readErr, io.ErrUnexpectedEOF)
	_, err = x.Shell.Write([]byte("x"))
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	require.ErrorIs(t, x.Resize(80, 24), io.ErrUnexpectedEOF)
	t.Log(err)
}

// terminalService returns a sandbox whose terminals service handles.
func terminalService(t *testing.T, service http.HandlerFunc) *sandbox.Sandbox {
	t.Helper()
	sb, end := pipedSandbox(t, func(w http.ResponseWriter, r *http.Request, _ <-chan struct{}) { service(w, r) })
	t.Cleanup(end)
	return sb
}

// TestShellRefused: no error of a connection contains the terminal's token.
func TestShellRefused(t *testing.T) {
	t.Parallel()
	for name, service := range map[string]http.HandlerFunc{
		"status": func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusForbidden)
			fmt.Fprintf(w, `{"error":{"code":"forbidden","message":"bad token %s (%s)"}}`, r.URL.Query().Get("token"), r.URL.RawQuery)
		},
		"redirect": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://other.invalid/?"+r.URL.RawQuery, http.StatusFound)
		},
		"dropped": func(w http.ResponseWriter, _ *http.Request) { panic(http.ErrAbortHandler) },
		"no upgrade": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Connection", r.URL.RawQuery)
			w.WriteHeader(http.StatusSwitchingProtocols)
		},
		"closed": func(w http.ResponseWriter, r *http.Request) {
			conn, err := websocket.Accept(w, r, nil)
			if assert.NoError(t, err) {
				_, _, _ = conn.Read(r.Context())
				conn.Close(websocket.StatusPolicyViolation, "not for you")
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				sb := terminalService(t, service)
				sh, err := terminal.Open(t.Context(), sb, nil)
				if name == "closed" {
					require.NoError(t, err)
					_, err = sh.Wait(t.Context())
					_, ok := errors.AsType[*terminal.ShellError](err)
					require.True(t, ok)
					assert.ErrorContains(t, err, `with code 1008 ("not for you")`)
					require.NoError(t, sh.Close())
				}
				require.Error(t, err)
				t.Log(err)
				for e := err; e != nil; e = errors.Unwrap(e) {
					for _, text := range []string{fmt.Sprintf("%v", e), fmt.Sprintf("%+v", e), fmt.Sprintf("%#v", e)} {
						assert.NotContains(t, text, "secret")
					}
				}
				assert.NotContains(t, fmt.Sprintf("%v %+v %#v", sh, sh, sh), "secret")
			})
		})
	}
}

// TestShellServiceStarts: Open dials again while the service does not listen yet, and
// starts the program once.
func TestShellServiceStarts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		dials, begun := 0, 0
		sb := terminalService(t, func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			dials++
			n := dials
			mu.Unlock()
			switch n {
			case 1:
				panic(http.ErrAbortHandler)
			case 2:
				w.WriteHeader(http.StatusBadGateway)
				return
			case 3:
				w.WriteHeader(http.StatusTooManyRequests)
				return
			}
			conn, err := websocket.Accept(w, r, nil)
			if !assert.NoError(t, err) {
				return
			}
			_, data, err := conn.Read(r.Context())
			if assert.NoError(t, err) {
				mu.Lock()
				begun++
				mu.Unlock()
				assert.JSONEq(t, `{"type":"start","command":"","args":["--login"],"env":["TERM=xterm-256color"],"cwd":"/vercel","cols":80,"rows":24}`, string(data))
			}
			for _, text := range []string{`no message`, `{"type":"news"}`, `{"type":"exit","code":12}`} {
				assert.NoError(t, conn.Write(r.Context(), websocket.MessageText, []byte(text)))
			}
			conn.Close(websocket.StatusNormalClosure, "")
		})
		x := openScreen(t, sb, nil)
		assert.Equal(t, 12, x.exit())
		assert.Equal(t, "no message", x.text.String())
		assert.Equal(t, 4, dials)
		assert.Equal(t, 1, begun)
	})
}

// TestShellHostile: an exit without a code, an endless message and a close that looks clean
// are errors.
func TestShellHostile(t *testing.T) {
	t.Parallel()
	for name, send := range map[string]func(context.Context, *websocket.Conn){
		"no code": func(ctx context.Context, c *websocket.Conn) {
			_ = c.Write(ctx, websocket.MessageText, []byte(`{"type":"exit"}`))
		},
		"too large": func(ctx context.Context, c *websocket.Conn) {
			_ = c.Write(ctx, websocket.MessageText, make([]byte, 2<<20))
		},
		"clean close": func(_ context.Context, c *websocket.Conn) { c.Close(websocket.StatusNormalClosure, "") },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sb := terminalService(t, func(w http.ResponseWriter, r *http.Request) {
					conn, err := websocket.Accept(w, r, nil)
					if !assert.NoError(t, err) {
						return
					}
					defer conn.CloseNow()
					_, _, _ = conn.Read(r.Context())
					send(r.Context(), conn)
					_, _, _ = conn.Read(r.Context())
				})
				x := openScreen(t, sb, nil)
				_, err := x.Wait(t.Context())
				require.ErrorIs(t, err, io.ErrUnexpectedEOF)
				_, ok := errors.AsType[*terminal.ShellError](err)
				assert.True(t, ok)
				t.Log(err)
			})
		})
	}
}

// pipes is an in-memory listener, so that a test can use the fake clock.
type pipes struct {
	net.Listener
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error { p.once.Do(func() { close(p.closed) }); return nil }

func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Net: "unix", Name: "pipe"} }

func (p *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	here, there := net.Pipe()
	select {
	case p.conns <- there:
		return here, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// serveSilence is a terminal service that completes the handshake, reads the start message,
// sends word, and then sends nothing. It continues to read only if reads is true.
func serveSilence(t *testing.T, w http.ResponseWriter, r *http.Request, word string, reads bool, over <-chan struct{}) {
	sum := sha1.Sum([]byte(r.Header.Get("Sec-WebSocket-Key") + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
	conn, buf, err := http.NewResponseController(w).Hijack()
	if !assert.NoError(t, err) {
		return
	}
	defer conn.Close()
	_, err = fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: %s\r\n\r\n", base64.StdEncoding.EncodeToString(sum[:]))
	assert.NoError(t, err)
	// The frame of the start message has from 126 bytes to 64 KiB.
	head := make([]byte, 4)
	_, err = io.ReadFull(buf, head)
	assert.NoError(t, err)
	assert.EqualValues(t, 126, head[1]&0x7f)
	_, err = io.CopyN(io.Discard, buf, 4+int64(head[2])<<8+int64(head[3])) // with its mask
	assert.NoError(t, err)
	if word != "" {
		_, err = fmt.Fprintf(conn, "\x82%c%s", len(word), word) // a binary message
		assert.NoError(t, err)
	}
	if reads {
		_, _ = io.Copy(io.Discard, buf) // until the other side has closed
		return
	}
	<-over
}

// pipedSandbox returns a sandbox whose API and terminals are in memory. end closes them and
// the last argument of talk.
func pipedSandbox(t *testing.T, talk func(http.ResponseWriter, *http.Request, <-chan struct{})) (sb *sandbox.Sandbox, end func()) {
	t.Helper()
	l := &pipes{conns: make(chan net.Conn), closed: make(chan struct{})}
	service := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasSuffix(r.URL.Path, "/interactive"):
			_, _ = io.WriteString(w, `{"url":"http://terminal.test/terminal?region=iad1","token":"tok&en secret"}`)
		case r.URL.Path == "/terminal":
			assert.Equal(t, "tok&en secret", r.URL.Query().Get("token"))
			assert.Equal(t, "iad1", r.URL.Query().Get("region"))
			assert.Empty(t, r.Header.Get("Authorization"))
			talk(w, r, l.closed)
		default:
			_, _ = io.WriteString(w, strings.Replace(canned.RunningSandbox, `"id":"s1"`, `"id":"s1","cwd":"/vercel"`, 1))
		}
	})}
	var group sync.WaitGroup
	group.Go(func() { _ = service.Serve(l) })
	tr := &http.Transport{DialContext: l.dial}
	client, err := sandbox.NewClient(&sandbox.ClientOptions{
		BaseURL: "http://localhost", HTTPClient: &http.Client{Transport: tr},
		Credentials: auth.Static(auth.Credentials{Token: "tok", TeamID: "team", ProjectID: "prj"}),
	})
	require.NoError(t, err)
	sb, err = client.Get(t.Context(), "box", &sandbox.GetOptions{NoResume: true})
	require.NoError(t, err)
	return sb, func() {
		assert.NoError(t, l.Close())
		tr.CloseIdleConnections()
		_ = service.Close() // the listener is already closed
		group.Wait()
	}
}

// TestShellCloseIsBounded: Close waits at most a second for a silent peer, whether or not
// the peer reads the close message, and leaks nothing.
func TestShellCloseIsBounded(t *testing.T) {
	for name, reads := range map[string]bool{"it reads": true, "it does not": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sb, end := pipedSandbox(t, func(w http.ResponseWriter, r *http.Request, over <-chan struct{}) {
					serveSilence(t, w, r, "", reads, over)
				})
				defer end()
				sh, err := terminal.Open(t.Context(), sb, &terminal.ShellOptions{Env: sandbox.Env{"LONG": strings.Repeat("x", 200)}})
				require.NoError(t, err)
				begin := time.Now()
				require.NoError(t, sh.Close())
				assert.LessOrEqual(t, time.Since(begin), time.Second)
				require.NoError(t, sh.Close(), "second Close")
				_, err = sh.Wait(t.Context())
				require.ErrorIs(t, err, io.ErrClosedPipe)
			})
		})
	}
}

// TestShellPings: a connection to a silent peer ends with an error. A connection whose output
// waits to be read is kept.
func TestShellPings(t *testing.T) {
	const interval = 20 * time.Second
	t.Run("silent", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			sb, end := pipedSandbox(t, func(w http.ResponseWriter, r *http.Request, over <-chan struct{}) {
				serveSilence(t, w, r, "ready> ", true, over)
			})
			defer end()
			sh, err := terminal.Open(t.Context(), sb, &terminal.ShellOptions{Env: sandbox.Env{"LONG": strings.Repeat("x", 200)}})
			require.NoError(t, err)
			x := watchShell(t, sh)
			x.until("ready> ")
			begin := time.Now()
			assertLost(t, sb, x)
			assert.LessOrEqual(t, time.Since(begin), 3*interval)
		})
	})
	t.Run("one missed", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var pings atomic.Int64
			sb, end := pipedSandbox(t, func(w http.ResponseWriter, r *http.Request, _ <-chan struct{}) {
				conn, err := websocket.Accept(w, r, &websocket.AcceptOptions{OnPingReceived: func(context.Context, []byte) bool {
					return pings.Add(1)%2 == 0 // every second ping gets its reply
				}})
				if !assert.NoError(t, err) {
					return
				}
				defer conn.CloseNow()
				_, _, err = conn.Read(r.Context())
				assert.NoError(t, err)
				read := conn.CloseRead(r.Context())
				select {
				case <-time.After(time.Hour):
				case <-read.Done():
					t.Error("the terminal was abandoned")
				}
				assert.NoError(t, conn.Write(r.Context(), websocket.MessageText, []byte(`{"type":"exit","code":5}`)))
				<-read.Done() // until the other side has closed
			})
			defer end()
			sh, err := terminal.Open(t.Context(), sb, nil)
			require.NoError(t, err)
			defer sh.Close()
			_, err = io.ReadAll(sh)
			require.NoError(t, err)
			code, err := sh.Wait(t.Context())
			require.NoError(t, err)
			assert.Equal(t, 5, code)
			assert.Greater(t, pings.Load(), int64(60))
		})
	})
	t.Run("slow reader", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			block := []byte(strings.Repeat("0123456789", 1000))
			sb, end := pipedSandbox(t, func(w http.ResponseWriter, r *http.Request, _ <-chan struct{}) {
				conn, err := websocket.Accept(w, r, nil)
				if !assert.NoError(t, err) {
					return
				}
				defer conn.CloseNow()
				_, _, err = conn.Read(r.Context())
				assert.NoError(t, err)
				for range 100 {
					assert.NoError(t, conn.Write(r.Context(), websocket.MessageBinary, block))
				}
				assert.NoError(t, conn.Write(r.Context(), websocket.MessageText, []byte(`{"type":"exit","code":5}`)))
				_, _, _ = conn.Read(r.Context()) // until the other side has closed
			})
			defer end()
			sh, err := terminal.Open(t.Context(), sb, nil)
			require.NoError(t, err)
			defer sh.Close()
			first := make([]byte, 1)
			_, err = io.ReadFull(sh, first)
			require.NoError(t, err)
			time.Sleep(time.Hour) // does not reply to pings
			rest, err := io.ReadAll(sh)
			require.NoError(t, err)
			assert.Len(t, rest, 100*len(block)-1)
			code, err := sh.Wait(t.Context())
			require.NoError(t, err)
			assert.Equal(t, 5, code)
		})
	})
	t.Run("slow program", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			input := []byte(strings.Repeat("0123456789", 10_000))
			sb, end := pipedSandbox(t, func(w http.ResponseWriter, r *http.Request, _ <-chan struct{}) {
				conn, err := websocket.Accept(w, r, nil)
				if !assert.NoError(t, err) {
					return
				}
				defer conn.CloseNow()
				_, _, err = conn.Read(r.Context())
				assert.NoError(t, err)
				var got []byte
				for len(got) < len(input) {
					time.Sleep(time.Hour) // reads nothing, not even pings
					_, data, err := conn.Read(r.Context())
					if !assert.NoError(t, err) {
						return
					}
					got = append(got, data...)
				}
				assert.Equal(t, input, got)
				assert.NoError(t, conn.Write(r.Context(), websocket.MessageText, []byte(`{"type":"exit","code":5}`)))
				_, _, _ = conn.Read(r.Context()) // until the other side has closed
			})
			defer end()
			sh, err := terminal.Open(t.Context(), sb, nil)
			require.NoError(t, err)
			defer sh.Close()
			_, err = sh.Write(input)
			require.NoError(t, err)
			_, err = io.ReadAll(sh)
			require.NoError(t, err)
			code, err := sh.Wait(t.Context())
			require.NoError(t, err)
			assert.Equal(t, 5, code)
		})
	})
}
