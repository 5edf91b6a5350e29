package tunnel

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/internal/test/needs"
	"github.com/go-vercel/sandbox/internal/test/testkit"
	"github.com/go-vercel/sandbox/sandboxtest"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// serve is the command "serve" of a sandbox: a server that prints its port. The first byte of
// a connection selects what it does. Connections end with the helper.
func serve(ctx context.Context, inv *sandboxtest.Invocation) int {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Fprintln(inv.Stderr, err)
		return 1
	}
	defer context.AfterFunc(ctx, func() { _ = l.Close() })()
	fmt.Fprintln(inv.Stdout, l.Addr().(*net.TCPAddr).Port)
	for {
		conn, err := l.Accept()
		if err != nil {
			return 0
		}
		go serveConn(conn.(*net.TCPConn), inv)
	}
}

func serveConn(c *net.TCPConn, inv *sandboxtest.Invocation) {
	defer c.Close()
	_, _ = c.SetReadBuffer(64<<10), c.SetWriteBuffer(64<<10) // otherwise the kernel buffers megabytes of an unread connection
	what := make([]byte, 1)
	if _, err := c.Read(what); err != nil {
		return
	}
	switch what[0] {
	case 'e': // echo
		_, _ = io.Copy(c, c)
	case 'c': // count up to the end, then send the number
		n, _ := io.Copy(io.Discard, c)
		fmt.Fprint(c, n)
	case 'h': // send everything, then count into a file
		_, _ = io.WriteString(c, "all")
		_ = c.CloseWrite()
		n, _ := io.Copy(io.Discard, c)
		_ = inv.WriteFile("counted", fmt.Append(nil, n), 0o644)
	case 'r': // reset
		_ = c.SetLinger(0)
	}
}

// serverSandbox creates a sandbox in which serve runs, and returns its port. In folder mode
// the sandbox shares the test's network.
func serverSandbox(t *testing.T, create *sandbox.CreateOptions) (*sandboxtest.Server, *sandbox.Sandbox, int) {
	t.Helper()
	srv := sandboxtest.New(t, &sandboxtest.Options{Mode: sandboxtest.Folder})
	srv.HandleCommand("serve", serve)
	sb, err := testkit.Client(t, srv, sandbox.ClientOptions{}).Create(t.Context(), testkit.Lasting(create))
	require.NoError(t, err)
	return srv, sb, startServer(t, sb, "serve")
}

// interpreters are the helpers, each on its own.
var interpreters = []struct {
	name    string
	helpers helpers
}{
	{"python3", helpers{python: pythonHelper}},
	{"node", helpers{node: nodeHelper}},
}

// eachHelper runs a test with each helper. dial connects to the server and sends its argument.
func eachHelper(t *testing.T, test func(t *testing.T, sb *sandbox.Sandbox, dial func(what string) *Conn)) {
	for _, i := range interpreters {
		t.Run(i.name, func(t *testing.T) {
			t.Parallel()
			needs.Programs(t, "stty", i.name)
			_, sb, port := serverSandbox(t, nil)
			test(t, sb, func(what string) *Conn {
				c, err := dial(t.Context(), sb, port, i.helpers)
				require.NoError(t, err)
				t.Cleanup(func() { c.Close() })
				require.NoError(t, c.SetDeadline(time.Now().Add(testkit.Patience)))
				_, err = io.WriteString(c, what)
				require.NoError(t, err)
				return c
			})
		})
	}
}

// uniqueLogname returns a LOGNAME that identifies the processes of a test.
func uniqueLogname(t *testing.T) string {
	return "OF_" + strings.Map(func(r rune) rune {
		if r == '/' {
			return '_'
		}
		return r
	}, t.Name()) + "_" + strconv.Itoa(os.Getpid())
}

func startServer(t testing.TB, sb *sandbox.Sandbox, name string, args ...string) int {
	t.Helper()
	cmd, err := sb.StartCommand(t.Context(), name, args, nil)
	require.NoError(t, err)
	for e, err := range cmd.Logs(t.Context()) {
		require.NoError(t, err)
		port, err := strconv.Atoi(strings.TrimSpace(e.Data))
		require.NoError(t, err, e.Data)
		return port
	}
	t.Fatal("the server printed no port")
	return 0
}

// TestConn echoes more than a window of every byte. Either end may close its writing side
// first, and Close delivers what was written.
func TestConn(t *testing.T) {
	t.Parallel()
	eachHelper(t, func(t *testing.T, sb *sandbox.Sandbox, dial func(string) *Conn) {
		c := dial("e")
		sent := make([]byte, 2*firstWindow)
		_, err := rand.Read(sent)
		require.NoError(t, err)
		for i := range 256 {
			sent[i] = byte(i)
		}
		var writing sync.WaitGroup
		defer writing.Wait()
		writing.Go(func() {
			_, err := c.Write(sent)
			assert.NoError(t, err)
		})
		got := make([]byte, len(sent))
		_, err = io.ReadFull(c, got)
		require.NoError(t, err)
		assert.True(t, bytes.Equal(sent, got))

		c = dial("c" + strings.Repeat("x", 100_000))
		require.NoError(t, c.CloseWrite())
		_, err = c.Write([]byte("more"))
		require.ErrorIs(t, err, syscall.EPIPE)
		text, err := io.ReadAll(c)
		require.NoError(t, err)
		assert.Equal(t, "100000", string(text))

		c = dial("h")
		text, err = io.ReadAll(c)
		require.NoError(t, err)
		assert.Equal(t, "all", string(text))
		_, err = c.Write(make([]byte, 200_000))
		require.NoError(t, err)
		require.NoError(t, c.Close())
		require.EventuallyWithT(t, func(t *assert.CollectT) {
			counted, err := sb.FS().ReadFile(context.Background(), "counted")
			assert.NoError(t, err)
			assert.Equal(t, "200000", string(counted))
		}, testkit.Patience, 50*time.Millisecond)
	})
}

// TestConnErrors tests the errors of a Conn after a reset by the server, the end of the helper,
// Close and deadlines.
func TestConnErrors(t *testing.T) {
	t.Parallel()
	eachHelper(t, func(t *testing.T, sb *sandbox.Sandbox, dial func(string) *Conn) {
		c := dial("r")
		_, err := c.Read(make([]byte, 1))
		require.ErrorIs(t, err, syscall.ECONNRESET)
		require.Eventually(t, func() bool {
			_, err := c.Write([]byte("x"))
			return err != nil
		}, testkit.Patience, 10*time.Millisecond)

		c = dial("e")
		require.NoError(t, c.SetReadDeadline(time.Unix(1, 0)))
		_, err = c.Read(make([]byte, 1))
		var timeout net.Error
		require.ErrorAs(t, err, &timeout)
		assert.True(t, timeout.Timeout())
		require.NoError(t, c.SetDeadline(time.Time{}))
		_, err = io.WriteString(c, "still there")
		require.NoError(t, err)
		got := make([]byte, 11)
		_, err = io.ReadFull(c, got)
		require.NoError(t, err)
		assert.Equal(t, "still there", string(got))
		assert.Equal(t, net.JoinHostPort(sb.Name(), strconv.Itoa(c.remote.port)), c.RemoteAddr().String())
		require.NoError(t, c.Close())
		require.NoError(t, c.Close())
		_, err = c.Read(got)
		require.ErrorIs(t, err, net.ErrClosed)
		_, err = c.Write(got)
		require.ErrorIs(t, err, net.ErrClosed)
		require.ErrorIs(t, c.CloseWrite(), net.ErrClosed)
		require.ErrorIs(t, c.SetDeadline(time.Time{}), net.ErrClosed)

		c = dial("e")
		_, err = sb.Stop(t.Context(), nil)
		require.NoError(t, err)
		_, err = c.Read(got)
		require.Error(t, err)
		require.NotErrorIs(t, err, io.EOF)
	})
}

// TestDialRefused: Dial fails if nothing listens, no interpreter exists, the port is
// invalid, or the context has ended.
func TestDialRefused(t *testing.T) {
	t.Parallel()
	for _, i := range interpreters {
		t.Run(i.name, func(t *testing.T) {
			t.Parallel()
			needs.Programs(t, "stty", i.name)
			_, sb := testkit.LightStart(t, nil)
			_, err := dial(t.Context(), sb, 1, i.helpers)
			require.ErrorIs(t, err, ErrRefused)
			require.ErrorContains(t, err, `port 1 of "`+sb.Name())
		})
	}
	_, sb := testkit.LightStart(t, nil)
	_, err := dial(t.Context(), sb, 1, helpers{})
	require.ErrorContains(t, err, "needs python3 or node, and the image has neither")
	_, err = Dial(t.Context(), sb, 0)
	require.ErrorIs(t, err, sandbox.ErrInvalid)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = Dial(ended, sb, 1)
	require.ErrorIs(t, err, context.Canceled)
}

// TestDialOutlivesContext: as with a net.Dialer, the end of Dial's context does not end the
// connection. Dial resumes the sandbox, and its hooks run.
func TestDialOutlivesContext(t *testing.T) {
	t.Parallel()
	needs.Programs(t, "stty", "python3")
	port := needs.Port(t)
	_, sb := testkit.LightStart(t, &sandbox.CreateOptions{OnResume: func(ctx context.Context, sb *sandbox.Sandbox) error {
		_, err := sb.EnsureCommand(ctx, "web", "python3", []string{"-u", "-m", "http.server", "--bind", "127.0.0.1", strconv.Itoa(port)},
			&sandbox.EnsureOptions{Log: regexp.MustCompile("Serving")})
		return err
	}})
	require.NoError(t, sb.FS().WriteFile(t.Context(), "index.html", []byte("Hello"), 0o644))
	_, err := sb.Stop(t.Context(), nil)
	require.NoError(t, err)
	client := &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			return Dial(ctx, sb, port)
		},
	}}
	defer client.CloseIdleConnections()
	for range 2 {
		resp, err := client.Get("http://sandbox/")
		require.NoError(t, err)
		text, err := io.ReadAll(resp.Body)
		require.NoError(t, errors.Join(err, resp.Body.Close()))
		assert.Equal(t, "Hello", string(text))
	}
}
