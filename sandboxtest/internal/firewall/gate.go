package firewall

import (
	"context"
	"net"
	"net/netip"
)

// judge decides what leaves a box that has a network of its own. Its methods are
// called concurrently.
type judge interface {
	// lookup reports whether a name may be looked up, and its IPv4 address in the
	// box. An invalid address means that of the machine's resolver.
	lookup(name string) (addr netip.Addr, ok bool)
	// connect decides about a TCP connection.
	connect(to netip.AddrPort) verdict
	// send decides about datagrams, except to the box's resolver.
	send(to netip.AddrPort) bool
	// serve takes over a connection to inspect, and closes it. It returns when
	// the connection is over, and soon after ctx ends.
	serve(ctx context.Context, conn net.Conn, to netip.AddrPort)
}

// verdict is a judge's decision about a connection.
type verdict int

// The verdicts.
const (
	// refuse answers "connection refused".
	refuse verdict = iota
	// pass connects the box to its destination.
	pass
	// inspect accepts the connection and leaves it to the judge's serve.
	inspect
)

// The network that a box sees: itself, the host, and a resolver.
var (
	BoxAddr      = netip.MustParseAddr("10.0.2.15")
	HostAddr     = netip.MustParseAddr("10.0.2.2")
	ResolverAddr = netip.MustParseAddr("10.0.2.3")
)

// HostName is the name that the machine has in every box.
const HostName = "host.internal"

// MTU is how long the packets of a box may be.
const MTU = 9000

// namedAddr returns the address, in the network of a box, of the i-th name to
// which a firewall gives an address of its own; false if there are no more.
func namedAddr(i int) (netip.Addr, bool) {
	const first, last = 64, 254
	if i < 0 || i > last-first {
		return netip.Addr{}, false
	}
	return netip.AddrFrom4([4]byte{10, 0, 2, byte(first + i)}), true
}

// lowerName is a name of DNS in lower case. Only the letters of ASCII have one:
// strings.ToLower would make other names of some, which are not those that are
// looked up.
func lowerName(name string) string {
	low := []byte(name)
	for i, c := range low {
		if c >= 'A' && c <= 'Z' {
			low[i] = c + 'a' - 'A'
		}
	}
	return string(low)
}
