package box

import (
	"fmt"
	"io"
	"net"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/internal/test/needs"
	"github.com/go-vercel/sandbox/proxy/proxytest"
	"github.com/go-vercel/sandbox/sandboxtest/internal/box/backend"
	"github.com/go-vercel/sandbox/sandboxtest/internal/box/namespaces"
	"github.com/go-vercel/sandbox/sandboxtest/internal/firewall"
)

// openNetworked skips the test if sandboxes have no networks of their own.
func openNetworked(t *testing.T) *Host {
	h := sharedHost(t, Namespace)
	if !h.Gated() {
		needs.Other(t, "no /dev/net/tun")
	}
	return h
}

const greeter = `
import socket, sys, threading
def greet(s):
    while True:
        c, _ = s.accept()
        c.sendall(sys.argv[1].encode())
        c.close()
servers = [socket.create_server((host, int(port))) for host, port in (at.split(":") for at in sys.argv[2:])]
print("listening", flush=True)
for s in servers: threading.Thread(target=greet, args=(s,)).start()
`

// serveText starts servers at the addresses, which send a text to each connection.
func serveText(t *testing.T, b *Box, text string, addrs ...string) {
	t.Helper()
	ready, out := io.Pipe()
	p := start(t, b, backend.Spec{Path: "python3", Args: append([]string{"-c", greeter, text}, addrs...), Stdout: out})
	go func() { <-p.Done(); _ = out.Close() }()
	_, err := ready.Read(make([]byte, 100))
	require.NoError(t, err)
	go func() { _, _ = io.Copy(io.Discard, ready) }()
}

func dialText(t *testing.T, b *Box, port int) string {
	t.Helper()
	conn, err := b.Dial(t.Context(), port)
	require.NoError(t, err)
	defer conn.Close()
	data, err := io.ReadAll(conn)
	require.NoError(t, err)
	return string(data)
}

func TestBoxesListenOnTheSamePort(t *testing.T) {
	t.Parallel()
	h := openNetworked(t)
	one, two, denied := newBox(t, h, backend.Config{}), newBox(t, h, backend.Config{}), newBox(t, h, backend.Config{DenyNetwork: true})
	needs.Programs(t, "python3")
	_, err := one.Dial(t.Context(), 3000)
	require.Error(t, err)
	serveText(t, one, "one", "10.0.2.15:3000", "127.0.0.1:4000")
	serveText(t, two, "two", "0.0.0.0:3000")
	serveText(t, denied, "denied", "0.0.0.0:3000")
	assert.Equal(t, "one", dialText(t, one, 3000))
	assert.Equal(t, "two", dialText(t, two, 3000))
	assert.Equal(t, "denied", dialText(t, denied, 3000))
	_, err = one.Dial(t.Context(), 4000)
	require.ErrorIs(t, err, backend.ErrLoopbackOnly)
	for _, port := range []int{0, -1, 65536} {
		_, err := one.Dial(t.Context(), port)
		require.Error(t, err)
	}
}

func TestDialInFolderMode(t *testing.T) {
	t.Parallel()
	b := sharedBox(t, sharedHost(t, Folder))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	conn, err := b.Dial(t.Context(), l.Addr().(*net.TCPAddr).Port)
	require.NoError(t, err)
	require.NoError(t, conn.Close())
}

// client talks to the host, which echoes what it sends, over TCP and UDP.
const client = `
import socket, sys
host, tcp, udp, size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
c = socket.create_connection((host, tcp), 20)
data = bytes(i * 7 % 251 for i in range(size))
import threading
threading.Thread(target=lambda: (c.sendall(data), c.shutdown(socket.SHUT_WR))).start()
got = b""
while True:
    part = c.recv(65536)
    if not part: break
    got += part
assert got == data, (len(got), len(data))
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
u.settimeout(20)
for n in (1, 2, 999, 8000):
    u.sendto(data[:n], (host, udp))
    assert u.recv(65536) == data[:n]
print("fine")
`

// echo serves both protocols on the host's loopback.
func echo(t *testing.T) (tcp, udp int) {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(c, c); _ = c.Close() }()
		}
	}()
	p, err := net.ListenPacket("udp4", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = p.Close() })
	go func() {
		buf := make([]byte, 65536)
		for {
			n, from, err := p.ReadFrom(buf)
			if err != nil {
				return
			}
			_, _ = p.WriteTo(buf[:n], from)
		}
	}()
	return l.Addr().(*net.TCPAddr).Port, p.LocalAddr().(*net.UDPAddr).Port
}

// TestNetworkLeadsOutsideUntilDenied: a policy that denies everything breaks the
// connections of a running sandbox and refuses new ones, until another policy is set.
func TestNetworkLeadsOutsideUntilDenied(t *testing.T) {
	t.Parallel()
	h := openNetworked(t)
	needs.Programs(t, "python3", "bash")
	site, err := firewall.NewSite(firewall.Options{Guard: h.guard, Log: h.log})
	require.NoError(t, err)
	allow, deny := &firewall.Policy{Mode: firewall.AllowAll}, &firewall.Policy{Mode: firewall.DenyAll}
	f := site.New(t.Context(), proxytest.Claims{}, allow)
	t.Cleanup(f.Close)
	b := newBox(t, h, backend.Config{Firewall: f})
	tcp, udp := echo(t)
	const size = 64 << 10
	try := func(port int) (string, int) {
		out, errOut, code := run(t, b, backend.Spec{Path: "python3", Args: []string{"-c", client, firewall.HostAddr.String(), fmt.Sprint(port), fmt.Sprint(udp), fmt.Sprint(size)}})
		return out + errOut, code
	}
	connect := func(port int) string {
		_, errOut, _ := run(t, b, backend.Spec{Path: "bash", Args: []string{"-c", fmt.Sprintf("exec 3<>/dev/tcp/%v/%d", firewall.HostAddr, port)}})
		return errOut
	}
	out, code := try(tcp)
	require.Zero(t, code, out)
	use := b.Usage()
	assert.GreaterOrEqual(t, use.NetworkIn, int64(size))
	assert.GreaterOrEqual(t, use.NetworkOut, int64(size))

	l, err := net.Listen("tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	free := l.Addr().(*net.TCPAddr).Port
	require.NoError(t, l.Close())
	assert.Contains(t, connect(free), "Connection refused")

	f.Enforce(deny)
	assert.Contains(t, connect(tcp), "Connection refused")
	f.Enforce(allow)
	assert.Empty(t, connect(tcp))

	// Denying the network breaks open connections.
	ready, w := io.Pipe()
	p := start(t, b, backend.Spec{Path: "python3", Args: []string{"-c", `
import socket, sys
c = socket.create_connection(("` + firewall.HostAddr.String() + `", ` + fmt.Sprint(tcp) + `), 20)
c.sendall(b"x"); c.recv(1)
print("open", flush=True)
c.settimeout(50)
try:
    c.recv(1)
except ConnectionResetError:
    sys.exit(0)
except OSError as e:
    print(e)
sys.exit(1)
`}, Stdout: w})
	_, err = ready.Read(make([]byte, 100))
	require.NoError(t, err)
	f.Enforce(deny)
	b.Disconnect()
	assert.Zero(t, p.Wait())

	// The policy and the traffic survive a restart.
	require.NoError(t, b.Stop())
	assert.GreaterOrEqual(t, b.Usage().NetworkIn, int64(size))
	require.NoError(t, b.Restart())
	assert.Contains(t, connect(tcp), "Connection refused")
}

func TestDeniedWithoutTUN(t *testing.T) {
	t.Parallel()
	h := openHost(t, Options{Mode: Namespace})
	local, ok := h.backend.(*namespaces.Backend)
	if !ok {
		needs.Other(t, "needs the host's root")
	}
	local.TUN = false // no sandbox has started yet
	shared, denied := newBox(t, h, backend.Config{}), newBox(t, h, backend.Config{DenyNetwork: true})
	assert.Contains(t, sh(t, shared, "ls /sys/class/net"), "lo")
	assert.Equal(t, "lo", sh(t, denied, "ls /sys/class/net"))
	tcp, _ := echo(t)
	conn, err := shared.Dial(t.Context(), tcp)
	require.NoError(t, err)
	require.NoError(t, conn.Close())
	_, err = denied.Dial(t.Context(), tcp)
	require.Error(t, err)
}
