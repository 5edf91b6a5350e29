package tunnel_test

import (
	"bytes"
	"crypto/rand"
	"io"
	"net"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/tunnel"
	"github.com/go-vercel/sandbox/internal/needs"
	"github.com/go-vercel/sandbox/sandboxtest"
)

func newSandbox(t *testing.T) *sandbox.Sandbox {
	t.Helper()
	needs.Programs(t, "bash", "stty", "python3")
	sb, err := sandboxtest.New(t, nil).Client().Create(t.Context(), nil)
	require.NoError(t, err)
	return sb
}

// echo is a server that sends back what it gets, on a port that it prints.
const echo = `
import socket, threading
s = socket.create_server(("127.0.0.1", 0)); print(s.getsockname()[1], flush=True)
def serve(c):
    while True:
        d = c.recv(65536)
        if not d: break
        c.sendall(d)
    c.close()
while True:
    threading.Thread(target=serve, args=(s.accept()[0],), daemon=True).start()
`

func startEcho(t *testing.T, sb *sandbox.Sandbox) int {
	t.Helper()
	cmd, err := sb.StartCommand(t.Context(), "python3", []string{"-c", echo}, nil)
	require.NoError(t, err)
	for e, err := range cmd.Logs(t.Context()) {
		require.NoError(t, err)
		port, err := strconv.Atoi(string(bytes.TrimSpace([]byte(e.Data))))
		require.NoError(t, err, e.Data)
		return port
	}
	t.Fatal("the server said nothing")
	return 0
}

// TestDialEcho sends every byte there and back, a mebibyte of them.
func TestDialEcho(t *testing.T) {
	t.Parallel()
	sb := newSandbox(t)
	c, err := tunnel.Dial(t.Context(), sb, startEcho(t, sb))
	require.NoError(t, err)
	defer c.Close()
	sent := make([]byte, 1<<20)
	_, err = rand.Read(sent)
	require.NoError(t, err)
	for i := range 256 {
		sent[i] = byte(i)
	}
	go func() {
		_, err := c.Write(sent)
		assert.NoError(t, err)
	}()
	got := make([]byte, len(sent))
	_, err = io.ReadFull(c, got)
	require.NoError(t, err)
	assert.True(t, bytes.Equal(sent, got))
}

func TestDialRefused(t *testing.T) {
	t.Parallel()
	_, err := tunnel.Dial(t.Context(), newSandbox(t), 1)
	assert.ErrorIs(t, err, tunnel.ErrRefused)
}

// TestJoin lets a client hang up, and wants both ends closed.
func TestJoin(t *testing.T) {
	t.Parallel()
	sb := newSandbox(t)
	c, err := tunnel.Dial(t.Context(), sb, startEcho(t, sb))
	require.NoError(t, err)
	here, there := net.Pipe()
	done := make(chan error, 1)
	go func() { done <- tunnel.Join(there, c) }()
	_, err = here.Write([]byte("hello"))
	require.NoError(t, err)
	got := make([]byte, 5)
	_, err = io.ReadFull(here, got)
	require.NoError(t, err)
	assert.Equal(t, "hello", string(got))
	require.NoError(t, here.Close())
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatal("the tunnel is still there")
	}
}

func TestRun(t *testing.T) {
	t.Parallel()
	sb := newSandbox(t)
	c, err := tunnel.Run(t.Context(), sb, "/tmp/err", `read -r line; echo "got $line"; echo oops >&2; exit 3`)
	require.NoError(t, err)
	defer c.Close()
	_, err = c.Write([]byte("x\n"))
	require.NoError(t, err)
	out, err := io.ReadAll(c)
	require.NoError(t, err)
	assert.Equal(t, "got x\n", string(out))
	code, err := c.Wait(t.Context())
	require.NoError(t, err)
	assert.Equal(t, 3, code)
	text, err := sb.FS().ReadFile(t.Context(), "/tmp/err")
	require.NoError(t, err)
	assert.Equal(t, "oops\n", string(text))
}

// reset is a connection that the other end has reset.
type reset struct{ net.Conn }

func (reset) Read([]byte) (int, error) { return 0, syscall.ECONNRESET }

// TestJoinReset lets a connection break while the sandbox says nothing.
func TestJoinReset(t *testing.T) {
	t.Parallel()
	sb := newSandbox(t)
	c, err := tunnel.Dial(t.Context(), sb, startEcho(t, sb))
	require.NoError(t, err)
	here, there := net.Pipe()
	defer here.Close()
	done := make(chan error, 1)
	go func() { done <- tunnel.Join(reset{there}, c) }()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatal("the tunnel is still there")
	}
}
