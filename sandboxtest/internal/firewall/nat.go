package firewall

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-vercel/sandbox/sandboxtest/internal/guard"
)

const (
	dialTimeout = 30 * time.Second
	udpIdle     = 60 * time.Second
	maxFlows    = 4096
)

// This package implements a box's network itself instead of using slirp4netns or pasta:
// few machines have them, and the firewall decides on each connection by its content,
// which a separate program can't do. A library with its own TCP, such as gVisor's, would
// be the largest dependency of a module that tests import. It is not needed: the kernel
// speaks TCP at both ends, and only the addresses of packets have to be changed.

// NAT connects a box to the outside through the host's own sockets, without changing the
// host's network. It reads the box's packets from device. It changes the addresses of TCP
// packets and writes them back, so that they reach a listener inside the box's network.
// The kernel therefore speaks TCP at both ends, and NAT only copies bytes. A nil NAT has
// no connections.
type NAT struct {
	device   io.ReadWriteCloser
	listener net.Listener // inside the box's network
	local    netip.AddrPort
	log      *slog.Logger
	guard    *guard.Guard // of all its goroutines
	gate     judge        // nil lets everything through

	in, out atomic.Int64 // bytes, as seen from the box

	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu       sync.Mutex
	cut      context.Context // ends when the network is denied
	cutOff   context.CancelFunc
	tcp      map[flow]*tcpFlow
	ports    map[uint16]*tcpFlow
	lastPort uint16
	udp      map[flow]net.Conn
}

// flow is a connection as the box sees it.
type flow struct{ from, to netip.AddrPort }

// tcpFlow is a connection of the box and its other half.
type tcpFlow struct {
	flow
	port uint16   // stands for from.Port at the listener
	conn net.Conn // nil while dialing and once it was taken over
	up   bool
	// inspect says that the judge takes the box's half, and that there is no other half.
	inspect bool
	// taken is closed when the box's half has arrived.
	taken chan struct{}
	done  time.Time // when both halves had ended
}

// Connect connects a box to the outside. It reads and writes the box's packets at device.
// listener is inside the box's network. Close closes both. f decides what may pass; nil
// allows everything.
func Connect(device io.ReadWriteCloser, listener net.Listener, f *Firewall, log *slog.Logger) *NAT {
	if f == nil {
		return newNAT(device, listener, nil, log)
	}
	return newNAT(device, listener, f, log)
}

func newNAT(device io.ReadWriteCloser, listener net.Listener, gate judge, log *slog.Logger) *NAT {
	n := &NAT{
		device: device, listener: listener, gate: gate, log: log, guard: guard.New(log),
		local: listener.Addr().(*net.TCPAddr).AddrPort(),
		tcp:   make(map[flow]*tcpFlow), ports: make(map[uint16]*tcpFlow), udp: make(map[flow]net.Conn),
	}
	n.ctx, n.cancel = context.WithCancel(context.Background())
	n.cut, n.cutOff = context.WithCancel(n.ctx)
	n.guard.Go(&n.wg, "reading packets", n.readPackets)
	n.guard.Go(&n.wg, "accepting connections", n.accept)
	return n
}

// Disconnect ends all connections, but not later ones.
func (n *NAT) Disconnect() {
	if n == nil {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cutOff()
	n.cut, n.cutOff = context.WithCancel(n.ctx)
}

// Transferred counts bytes, as seen from the box.
func (n *NAT) Transferred() (in, out int64) {
	if n == nil {
		return 0, 0
	}
	return n.in.Load(), n.out.Load()
}

// breakOff closes a connection so that its peer gets an error instead of EOF.
func breakOff(conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // it may be closed already
	}
	_ = conn.Close()
}

// Close disconnects the box, and ends all connections.
func (n *NAT) Close() error {
	if n == nil {
		return nil
	}
	n.cancel()
	err := errors.Join(n.device.Close(), n.listener.Close())
	n.wg.Wait()
	n.cutOff()
	return err
}

func (n *NAT) readPackets() {
	buf := make([]byte, MTU+64)
	for {
		size, err := n.device.Read(buf)
		if err != nil {
			return
		}
		n.guard.Do("handling a packet", func() { n.handle(buf[:size]) })
	}
}

// handle handles one packet of the box.
func (n *NAT) handle(data []byte) {
	p, ok := parsePacket(data)
	switch {
	case !ok:
	case p.proto() == protoUDP:
		n.udpOut(p)
	case p.src() == n.local && p.dst().Addr() == HostAddr:
		n.tcpBack(p)
	default:
		n.tcpOut(p)
	}
}

func (n *NAT) write(data []byte) { _, _ = n.device.Write(data) }

// tcpOut sends a packet from the box to the listener.
func (n *NAT) tcpOut(p packet) {
	if port := n.forwarded(p); port != 0 {
		p.rewrite(netip.AddrPortFrom(HostAddr, port), n.local)
		n.write(p.data)
	}
}

// forwarded returns the port that represents the sender of a packet. The first packet of
// a connection opens it.
func (n *NAT) forwarded(p packet) (port uint16) {
	key := flow{p.src(), p.dst()}
	n.mu.Lock()
	defer n.mu.Unlock()
	f := n.tcp[key]
	if p.tcpFlags()&(flagSYN|flagACK) == flagSYN && (f == nil || !f.done.IsZero()) {
		if f != nil {
			n.dropLocked(f)
		}
		n.openLocked(key, packet{data: append([]byte(nil), p.data...), head: p.head})
		return 0
	}
	if f == nil || !f.up {
		return 0
	}
	return f.port
}

// tcpBack sends the listener's packet to the box. It replaces the source by the server to
// which the box is connected in its own view.
func (n *NAT) tcpBack(p packet) {
	n.mu.Lock()
	f := n.ports[p.dst().Port()]
	n.mu.Unlock()
	if f == nil {
		return
	}
	p.rewrite(f.to, f.from)
	n.write(p.data)
}

// openLocked dials before the box's connection is accepted, so that the box sees a
// refusal.
func (n *NAT) openLocked(key flow, syn packet) {
	port := n.freePortLocked()
	if port == 0 {
		return // the box will ask again
	}
	f := &tcpFlow{flow: key, port: port, taken: make(chan struct{})}
	verdict := n.verdict(key.to)
	if verdict == refuse {
		n.write(refusal(syn))
		return
	}
	n.tcp[key], n.ports[port] = f, f
	if verdict == inspect {
		f.up, f.inspect = true, true
		syn.rewrite(netip.AddrPortFrom(HostAddr, f.port), n.local)
		n.write(syn.data)
		return
	}
	cut := n.cut
	n.guard.Go(&n.wg, "connecting", func() { n.connect(cut, f, syn) })
}

// connect creates the other half of a connection.
func (n *NAT) connect(cut context.Context, f *tcpFlow, syn packet) {
	ctx, cancel := context.WithTimeout(cut, dialTimeout)
	defer cancel()
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", n.outside(f.to))
	n.mu.Lock()
	if err != nil {
		n.dropLocked(f)
	} else {
		f.conn, f.up = conn, true
	}
	n.mu.Unlock()
	if err != nil {
		n.write(refusal(syn))
		return
	}
	defer n.abandon(f)
	syn.rewrite(netip.AddrPortFrom(HostAddr, f.port), n.local)
	n.write(syn.data)
	timer := time.NewTimer(dialTimeout)
	defer timer.Stop()
	select {
	case <-f.taken:
	case <-timer.C:
	case <-n.ctx.Done():
	}
}

// abandon ends a connection that nothing has taken over, because the box has given up.
func (n *NAT) abandon(f *tcpFlow) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if f.conn != nil {
		_ = f.conn.Close()
		n.dropLocked(f)
	}
}

// verdict returns the judge's verdict. If some names must not be looked up, the resolver
// is not reachable over TCP.
func (n *NAT) verdict(to netip.AddrPort) verdict {
	switch {
	case special(to):
		return refuse
	case n.gate == nil:
		return pass
	case to.Addr() == ResolverAddr:
		if _, ok := n.gate.lookup(""); ok {
			return pass
		}
		return refuse
	}
	return n.gate.connect(to)
}

func (n *NAT) dropLocked(f *tcpFlow) {
	if n.tcp[f.flow] == f {
		delete(n.tcp, f.flow)
	}
	if n.ports[f.port] == f {
		delete(n.ports, f.port)
	}
}

// freePortLocked returns a port for a new connection, and forgets connections that ended
// long ago.
func (n *NAT) freePortLocked() uint16 {
	if len(n.ports) >= maxFlows {
		now := time.Now()
		for _, f := range n.ports {
			if !f.done.IsZero() && now.Sub(f.done) > 2*time.Second {
				n.dropLocked(f)
			}
		}
		if len(n.ports) >= maxFlows {
			return 0
		}
	}
	for {
		n.lastPort++
		if n.lastPort >= 1024 && n.ports[n.lastPort] == nil {
			return n.lastPort
		}
	}
}

// special reports whether a box must not reach an address with packets that it writes
// itself. It may reach the two addresses that only the network of boxes has.
func special(to netip.AddrPort) bool {
	return to.Addr() != HostAddr && to.Addr() != ResolverAddr && Special(to.Addr())
}

// outside returns the host's address for one of the box's network.
func (n *NAT) outside(to netip.AddrPort) string {
	switch to.Addr() {
	case HostAddr:
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), to.Port()).String()
	case ResolverAddr:
		return hostResolver()
	}
	return to.String()
}

func (n *NAT) accept() {
	for {
		conn, err := n.listener.Accept()
		if err != nil {
			if n.ctx.Err() == nil {
				n.log.Warn("a box's network has stopped working", "error", err)
			}
			return
		}
		n.guard.Do("taking a connection over", func() { n.take(conn.(*net.TCPConn)) })
	}
}

// take finds the connection to which the box's half belongs.
func (n *NAT) take(conn *net.TCPConn) {
	port := conn.RemoteAddr().(*net.TCPAddr).AddrPort().Port()
	n.mu.Lock()
	defer n.mu.Unlock()
	f, cut := n.ports[port], n.cut
	switch {
	case f != nil && f.inspect:
		n.guard.Go(&n.wg, "inspecting a connection", func() { n.serve(cut, f, conn) })
	case f != nil && f.conn != nil:
		server := f.conn.(*net.TCPConn)
		f.conn = nil
		close(f.taken)
		n.guard.Go(&n.wg, "relaying a connection", func() { n.relay(cut, f, conn, server) })
	default: // not one of ours
		_ = conn.Close()
	}
}

// serve passes a connection to the judge.
func (n *NAT) serve(cut context.Context, f *tcpFlow, conn net.Conn) {
	defer n.end(f, conn)
	stop := context.AfterFunc(cut, func() { breakOff(conn) })
	defer stop()
	n.gate.serve(cut, inspected{conn, n}, f.to)
}

// end closes the open parts of a connection.
func (n *NAT) end(f *tcpFlow, halves ...net.Conn) {
	for _, half := range halves {
		_ = half.Close()
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	f.done = time.Now()
}

// inspected counts the bytes of a connection that the judge serves.
type inspected struct {
	net.Conn
	n *NAT
}

func (c inspected) Read(p []byte) (int, error) {
	size, err := c.Conn.Read(p)
	c.n.out.Add(int64(size))
	return size, err
}

func (c inspected) Write(p []byte) (int, error) {
	size, err := c.Conn.Write(p)
	c.n.in.Add(int64(size))
	return size, err
}

// CloseWrite closes the sending direction, as on a *net.TCPConn.
func (c inspected) CloseWrite() error { return c.Conn.(*net.TCPConn).CloseWrite() }

// relay copies in both directions until both have ended.
func (n *NAT) relay(cut context.Context, f *tcpFlow, box, server *net.TCPConn) {
	defer n.end(f, box, server)
	stop := context.AfterFunc(cut, func() { breakOff(box); _ = server.Close() })
	defer stop()
	var wg sync.WaitGroup
	n.guard.Go(&wg, "sending", func() { copyHalf(server, box, &n.out) })
	n.guard.Go(&wg, "receiving", func() { copyHalf(box, server, &n.in) })
	wg.Wait()
}

func copyHalf(to, from *net.TCPConn, count *atomic.Int64) {
	_, err := io.Copy(to, counter{from, count})
	if err != nil {
		// If one half breaks, the other is useless.
		_ = to.SetLinger(0)
		_, _ = to.Close(), from.Close()
		return
	}
	_ = to.CloseWrite()
}

// counter counts the bytes that are read.
type counter struct {
	r     io.Reader
	count *atomic.Int64
}

func (c counter) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.count.Add(int64(n))
	return n, err
}

// udpOut forwards a datagram, and its replies.
func (n *NAT) udpOut(p packet) {
	key := flow{p.src(), p.dst()}
	if key.to.Addr() == ResolverAddr {
		if answer := n.resolve(p.payload()); answer != nil {
			n.write(datagram(key.to, key.from, answer))
			return
		}
	} else if special(key.to) || n.gate != nil && !n.gate.send(key.to) {
		return
	}
	conn := n.udpConn(key)
	if conn == nil {
		return
	}
	_ = conn.SetReadDeadline(time.Now().Add(udpIdle))
	size, _ := conn.Write(p.payload())
	n.out.Add(int64(size))
}

// udpConn returns the connection for a datagram, or nil if there can't be one.
func (n *NAT) udpConn(key flow) net.Conn {
	n.mu.Lock()
	defer n.mu.Unlock()
	if conn := n.udp[key]; conn != nil {
		return conn
	}
	if len(n.udp) >= maxFlows {
		return nil
	}
	conn, err := net.Dial("udp", n.outside(key.to)) // a number, so nothing is looked up
	if err != nil {
		return nil
	}
	n.udp[key] = conn
	cut := n.cut
	n.guard.Go(&n.wg, "receiving datagrams", func() { n.udpBack(cut, key, conn) })
	return conn
}

func (n *NAT) udpBack(cut context.Context, key flow, conn net.Conn) {
	defer n.forgetUDP(key, conn)
	stop := context.AfterFunc(cut, func() { _ = conn.Close() })
	defer stop()
	buf := make([]byte, MTU-28)
	for {
		size, err := conn.Read(buf)
		if err != nil {
			return
		}
		n.in.Add(int64(size))
		n.write(datagram(key.to, key.from, buf[:size]))
	}
}

func (n *NAT) forgetUDP(key flow, conn net.Conn) {
	_ = conn.Close()
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.udp[key] == conn {
		delete(n.udp, key)
	}
}

// hostResolver returns the host's first name server. It reads the file each time, because
// the host may move between networks.
func hostResolver() string {
	data, _ := os.ReadFile("/etc/resolv.conf")
	for line := range strings.Lines(string(data)) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == "nameserver" {
			return net.JoinHostPort(fields[1], "53")
		}
	}
	return "127.0.0.1:53"
}
