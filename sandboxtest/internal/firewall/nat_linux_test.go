package firewall

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// buffer may be written to by several goroutines.
type buffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// openNAT returns a NAT and the other end of its device: the test acts as the sandbox.
func openNAT(t testing.TB, filter filter, log *buffer) (*NAT, *os.File) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	require.NoError(t, err)
	box := os.NewFile(uintptr(fds[1]), "box")
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	n := newNAT(os.NewFile(uintptr(fds[0]), "device"), listener, filter, slog.New(slog.NewTextHandler(log, nil)))
	t.Cleanup(func() { assert.NoError(t, n.Close()); assert.NoError(t, box.Close()) })
	require.NoError(t, box.SetDeadline(time.Now().Add(20*time.Second)))
	return n, box
}

// faultyFilter is a filter that panics at some names, addresses and connections.
type faultyFilter struct{ served atomic.Int32 }

var faultyAddr = netip.MustParseAddr("192.0.2.66")

func (*faultyFilter) lookup(name string) (netip.Addr, bool) {
	if name == "faulty.test" {
		panic("lookup of a faulty name")
	}
	return netip.MustParseAddr("192.0.2.7"), true
}

func (*faultyFilter) connect(to netip.AddrPort) verdict {
	if to.Addr() == faultyAddr {
		panic("connection to a faulty address")
	}
	return inspect
}

func (*faultyFilter) send(netip.AddrPort) bool { panic("a faulty datagram") }

func (g *faultyFilter) serve(context.Context, net.Conn, netip.AddrPort) {
	g.served.Add(1)
	panic("a faulty connection")
}

// syn is the first packet of a connection.
func syn(from, to netip.AddrPort) []byte {
	p := newPacket(protoTCP, from, to, tcpHeader, nil)
	p.data[32], p.data[33] = tcpHeader/4<<4, flagSYN
	p.updateChecksums()
	return p.data
}

// TestPanicsDoNotEndTheProcess: a packet, a name or a connection that makes the
// emulator panic is dropped, and logged once. Later ones are handled.
func TestPanicsDoNotEndTheProcess(t *testing.T) {
	var log buffer
	filter := new(faultyFilter)
	n, box := openNAT(t, filter, &log)
	from := netip.AddrPortFrom(BoxAddr, 4000)
	resolver, other := netip.AddrPortFrom(ResolverAddr, 53), netip.MustParseAddrPort("192.0.2.7:443")
	send := func(data []byte) {
		t.Helper()
		_, err := box.Write(data)
		require.NoError(t, err)
	}
	get := func() packet {
		t.Helper()
		buf := make([]byte, MTU)
		size, err := box.Read(buf)
		require.NoError(t, err)
		p, ok := parsePacket(buf[:size])
		require.True(t, ok)
		return p
	}
	short := syn(from, other)
	short[2], short[3] = 0, 0 // a length of nothing
	for range 3 {
		send(short)
		send(datagram(from, resolver, dnsQuery("faulty.test")))
		send(datagram(from, other, []byte("x")))
		send(syn(from, netip.AddrPortFrom(faultyAddr, 443)))
		send(datagram(from, resolver, dnsQuery("good.test")))
		assert.Equal(t, resolver, get().src(), "the resolver still answers")
	}
	for i := range uint16(3) {
		// The sandbox's connection arrives at the listener from the port that represents it.
		l, err := net.Listen("tcp4", "127.0.0.1:0")
		require.NoError(t, err)
		free := l.Addr().(*net.TCPAddr)
		require.NoError(t, l.Close())
		n.mu.Lock()
		n.lastPort = uint16(free.Port - 1)
		n.mu.Unlock()
		send(syn(netip.AddrPortFrom(BoxAddr, 5000+i), other))
		assert.Equal(t, uint16(free.Port), get().src().Port())
		d := net.Dialer{LocalAddr: free}
		conn, err := d.DialContext(t.Context(), "tcp4", n.local.String())
		require.NoError(t, err)
		_, err = conn.Read(make([]byte, 1))
		require.Error(t, err, "it is closed")
		require.NoError(t, conn.Close())
	}
	assert.Equal(t, int32(3), filter.served.Load())
	assert.Eventually(t, func() bool { return strings.Count(log.String(), "dropped data of a sandbox") >= 4 }, 10*time.Second, time.Millisecond, "another goroutine writes the log")
	assert.Equal(t, 4, strings.Count(log.String(), "dropped data of a sandbox"), log.String())
	for _, what := range []string{"lookup of a faulty name", "connection to a faulty address", "a faulty datagram", "a faulty connection", "nat_linux_test.go:"} {
		assert.Contains(t, log.String(), what)
	}
}

// TestTooManyConnections: a sandbox with the maximum number of connections gets no more, and
// no response, until one of them has ended some time ago.
func TestTooManyConnections(t *testing.T) {
	n, box := openNAT(t, new(faultyFilter), new(buffer))
	from, resolver := netip.AddrPortFrom(BoxAddr, 4000), netip.AddrPortFrom(ResolverAddr, 53)
	var last *tcpFlow
	n.mu.Lock()
	for i := range uint16(maxFlows) {
		last = &tcpFlow{flow: flow{from: netip.AddrPortFrom(BoxAddr, 10_000+i)}, port: 20_000 + i, accepted: make(chan struct{})}
		n.tcp[last.flow], n.ports[last.port] = last, last
	}
	n.mu.Unlock()
	for _, want := range []netip.AddrPort{resolver, netip.AddrPortFrom(HostAddr, 30_001)} {
		for _, data := range [][]byte{syn(from, netip.MustParseAddrPort("192.0.2.7:443")), datagram(from, resolver, dnsQuery("good.test"))} {
			_, err := box.Write(data)
			require.NoError(t, err)
		}
		buf := make([]byte, MTU)
		size, err := box.Read(buf)
		require.NoError(t, err)
		p, ok := parsePacket(buf[:size])
		require.True(t, ok)
		assert.Equal(t, want, p.src())
		n.mu.Lock()
		assert.Equal(t, maxFlows, len(n.ports)) // Len would print them all
		last.done, n.lastPort = time.Now().Add(-time.Minute), 30_000
		n.mu.Unlock()
	}
}
