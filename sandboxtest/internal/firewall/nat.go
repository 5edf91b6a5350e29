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

// This package implements a sandbox's network itself instead of using slirp4netns or pasta:
// few machines have them, and the firewall decides on each connection by its content, which
// a separate program can't do. A library with its own TCP, such as gVisor's, would be the
// largest dependency of a module that tests import. It is not needed: the kernel speaks TCP
// at both ends, and only the addresses of packets have to be changed.

// NAT connects a sandbox to the outside through the host's own sockets, without changing
// the host's network. It reads the sandbox's packets from device. It changes the addresses
// of TCP packets and writes them back, so that they reach a listener inside the sandbox's
// network. For each connection that the listener accepts, it makes a connection to the
// server outside, and copies the bytes. The kernel therefore speaks TCP at both ends. A nil
// NAT has no connections.
type NAT struct {
	device   io.ReadWriteCloser
	listener net.Listener // inside the sandbox's network
	local    netip.AddrPort
	log      *slog.Logger
	guard    *guard.Guard // for all its goroutines
	filter   filter       // nil lets everything through

	in, out atomic.Int64 // bytes, as seen from the sandbox

	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu       sync.Mutex
	connCtx  context.Context // of the current connections; Disconnect ends it
	endConns context.CancelFunc
	tcp      map[flow]*tcpFlow
	ports    map[uint16]*tcpFlow
	lastPort uint16
	udp      map[flow]net.Conn
}

// flow is a connection as the sandbox sees it.
type flow struct{ from, to netip.AddrPort }

// tcpFlow is a TCP connection of the sandbox to a server outside. It consists of two
// connections: from the sandbox to the listener, and from this process to the server.
type tcpFlow struct {
	flow
	port uint16   // represents from.Port at the listener
	conn net.Conn // to the server; nil while dialing and once relay owns it
	up   bool     // the sandbox's packets go to the listener
	// inspect is set if the filter serves the sandbox's connection. NAT then makes none to
	// the server.
	inspect bool
	// accepted is closed when the listener has accepted the sandbox's connection.
	accepted chan struct{}
	done     time.Time // when both connections had ended
}

// Connect connects a sandbox to the outside. It reads and writes the sandbox's packets at
// device. listener is inside the sandbox's network. Close closes both. f decides what may
// pass; nil allows everything.
func Connect(device io.ReadWriteCloser, listener net.Listener, f *Firewall, log *slog.Logger) *NAT {
	if f == nil {
		return newNAT(device, listener, nil, log)
	}
	return newNAT(device, listener, f, log)
}

func newNAT(device io.ReadWriteCloser, listener net.Listener, filter filter, log *slog.Logger) *NAT {
	n := &NAT{
		device: device, listener: listener, filter: filter, log: log, guard: guard.New(log),
		local: listener.Addr().(*net.TCPAddr).AddrPort(),
		tcp:   make(map[flow]*tcpFlow), ports: make(map[uint16]*tcpFlow), udp: make(map[flow]net.Conn),
	}
	n.ctx, n.cancel = context.WithCancel(context.Background())
	n.connCtx, n.endConns = context.WithCancel(n.ctx)
	n.guard.Go(&n.wg, "reading packets", n.readPackets)
	n.guard.Go(&n.wg, "accepting connections", n.accept)
	return n
}

// Disconnect ends all current connections. Later ones are not affected.
func (n *NAT) Disconnect() {
	if n == nil {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.endConns()
	n.connCtx, n.endConns = context.WithCancel(n.ctx)
}

// Transferred returns the number of bytes that the sandbox has received and sent.
func (n *NAT) Transferred() (in, out int64) {
	if n == nil {
		return 0, 0
	}
	return n.in.Load(), n.out.Load()
}

// reset closes a connection so that its peer gets an error instead of EOF.
func reset(conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // it may be closed already
	}
	_ = conn.Close()
}

// Close disconnects the sandbox, and ends all connections.
func (n *NAT) Close() error {
	if n == nil {
		return nil
	}
	n.cancel()
	err := errors.Join(n.device.Close(), n.listener.Close())
	n.wg.Wait()
	n.endConns()
	return err
}

func (n *NAT) readPackets() {
	buf := make([]byte, MTU+64)
	for {
		size, err := n.device.Read(buf)
		if err != nil {
			return
		}
		n.guard.Do("handling a packet", func() { n.handlePacket(buf[:size]) })
	}
}

// handlePacket handles one packet of the sandbox.
func (n *NAT) handlePacket(data []byte) {
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

// tcpOut sends a packet from the sandbox to the listener.
func (n *NAT) tcpOut(p packet) {
	if port := n.portFor(p); port != 0 {
		p.rewrite(netip.AddrPortFrom(HostAddr, port), n.local)
		n.write(p.data)
	}
}

// portFor returns the port that represents the sender of a packet at the listener. It
// returns zero if the packet must not reach the listener now. The first packet of a
// connection opens it.
func (n *NAT) portFor(p packet) (port uint16) {
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

// tcpBack sends the listener's packet to the sandbox. It replaces the source by the server
// to which the sandbox believes to be connected.
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

// openLocked opens a connection. It connects to the server before the listener accepts the
// sandbox's connection. If the server refuses, the sandbox sees a refusal, too.
func (n *NAT) openLocked(key flow, syn packet) {
	port := n.freePortLocked()
	if port == 0 {
		return // the sandbox will send its SYN again
	}
	f := &tcpFlow{flow: key, port: port, accepted: make(chan struct{})}
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
	ctx := n.connCtx
	n.guard.Go(&n.wg, "connecting", func() { n.connect(ctx, f, syn) })
}

// connect connects to the server, and lets the listener accept the sandbox's connection.
func (n *NAT) connect(connCtx context.Context, f *tcpFlow, syn packet) {
	ctx, cancel := context.WithTimeout(connCtx, dialTimeout)
	defer cancel()
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", n.dialAddr(f.to))
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
	case <-f.accepted:
	case <-timer.C:
	case <-n.ctx.Done():
	}
}

// abandon closes the connection to the server if relay does not own it, because the sandbox
// has given up.
func (n *NAT) abandon(f *tcpFlow) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if f.conn != nil {
		_ = f.conn.Close()
		n.dropLocked(f)
	}
}

// verdict decides about a TCP connection. The sandbox's resolver is reachable over TCP only
// if all names may be looked up, because queries over TCP are not inspected.
func (n *NAT) verdict(to netip.AddrPort) verdict {
	switch {
	case special(to):
		return refuse
	case n.filter == nil:
		return pass
	case to.Addr() == ResolverAddr:
		if _, ok := n.filter.lookup(""); ok {
			return pass
		}
		return refuse
	}
	return n.filter.connect(to)
}

func (n *NAT) dropLocked(f *tcpFlow) {
	if n.tcp[f.flow] == f {
		delete(n.tcp, f.flow)
	}
	if n.ports[f.port] == f {
		delete(n.ports, f.port)
	}
}

// freePortLocked returns a port for a new connection. If there are too many connections, it
// forgets those that ended a while ago. It returns zero if there are still too many.
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

// special is [isSpecial] for the destinations of a sandbox's packets. HostAddr and
// ResolverAddr, which exist only in the sandbox's network, are not special.
func special(to netip.AddrPort) bool {
	return to.Addr() != HostAddr && to.Addr() != ResolverAddr && isSpecial(to.Addr())
}

// dialAddr returns the address that this process connects to for an address in the sandbox's
// network.
func (n *NAT) dialAddr(to netip.AddrPort) string {
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
				n.log.Warn("a sandbox's network has stopped working", "error", err)
			}
			return
		}
		n.guard.Do("accepting a connection", func() { n.dispatch(conn.(*net.TCPConn)) })
	}
}

// dispatch starts to serve a connection that the listener has accepted.
func (n *NAT) dispatch(conn *net.TCPConn) {
	port := conn.RemoteAddr().(*net.TCPAddr).AddrPort().Port()
	n.mu.Lock()
	defer n.mu.Unlock()
	f, ctx := n.ports[port], n.connCtx
	switch {
	case f != nil && f.inspect:
		n.guard.Go(&n.wg, "inspecting a connection", func() { n.serve(ctx, f, conn) })
	case f != nil && f.conn != nil:
		server := f.conn.(*net.TCPConn)
		f.conn = nil
		close(f.accepted)
		n.guard.Go(&n.wg, "relaying a connection", func() { n.relay(ctx, f, conn, server) })
	default: // it belongs to no connection of the sandbox
		_ = conn.Close()
	}
}

// serve passes a connection to the filter.
func (n *NAT) serve(ctx context.Context, f *tcpFlow, conn net.Conn) {
	defer n.closeFlow(f, conn)
	stop := context.AfterFunc(ctx, func() { reset(conn) })
	defer stop()
	n.filter.serve(ctx, inspected{conn, n}, f.to)
}

// closeFlow closes the connections of a flow.
func (n *NAT) closeFlow(f *tcpFlow, conns ...net.Conn) {
	for _, conn := range conns {
		_ = conn.Close()
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	f.done = time.Now()
}

// inspected counts the bytes of a connection that the filter serves.
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
func (n *NAT) relay(ctx context.Context, f *tcpFlow, client, server *net.TCPConn) {
	defer n.closeFlow(f, client, server)
	stop := context.AfterFunc(ctx, func() { reset(client); _ = server.Close() })
	defer stop()
	var wg sync.WaitGroup
	n.guard.Go(&wg, "sending", func() { copyOneWay(server, client, &n.out) })
	n.guard.Go(&wg, "receiving", func() { copyOneWay(client, server, &n.in) })
	wg.Wait()
}

func copyOneWay(to, from *net.TCPConn, count *atomic.Int64) {
	_, err := io.Copy(to, counter{from, count})
	if err != nil {
		// If one direction breaks, the other is useless.
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
	} else if special(key.to) || n.filter != nil && !n.filter.send(key.to) {
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
	conn, err := net.Dial("udp", n.dialAddr(key.to)) // a number, so nothing is looked up
	if err != nil {
		return nil
	}
	n.udp[key] = conn
	ctx := n.connCtx
	n.guard.Go(&n.wg, "receiving datagrams", func() { n.udpBack(ctx, key, conn) })
	return conn
}

// udpBack sends the replies to the sandbox.
func (n *NAT) udpBack(ctx context.Context, key flow, conn net.Conn) {
	defer n.forgetUDP(key, conn)
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
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
