package firewall

import (
	"context"
	"net"
	"net/netip"
)

// filter decides what leaves a sandbox that has its own network. Its methods are called
// concurrently.
type filter interface {
	// lookup reports whether a name may be looked up, and returns its IPv4 address in the
	// sandbox. An invalid address means that the machine's resolver has to answer.
	lookup(name string) (addr netip.Addr, ok bool)
	// connect decides about a TCP connection.
	connect(to netip.AddrPort) verdict
	// send reports whether datagrams may be sent, except those to the sandbox's resolver.
	send(to netip.AddrPort) bool
	// serve takes over a connection to inspect, and closes it. It returns when the
	// connection ends, and soon after ctx ends.
	serve(ctx context.Context, conn net.Conn, to netip.AddrPort)
}

// verdict is a filter's decision about a connection.
type verdict int

// The verdicts.
const (
	// refuse refuses the connection.
	refuse verdict = iota
	// pass connects the sandbox to the destination.
	pass
	// inspect accepts the connection and passes it to the filter's serve.
	inspect
)

// The addresses in a sandbox's network: its own, the host's, and a resolver's.
var (
	BoxAddr      = netip.MustParseAddr("10.0.2.15")
	HostAddr     = netip.MustParseAddr("10.0.2.2")
	ResolverAddr = netip.MustParseAddr("10.0.2.3")
)

// HostName is the host's name in every sandbox.
const HostName = "host.internal"

// MTU is the maximum size of a sandbox's packets.
const MTU = 9000

// namedAddr returns the address of the i-th of Options.Names in a sandbox's network. It
// returns false if there are no more addresses.
func namedAddr(i int) (netip.Addr, bool) {
	const first, last = 64, 254
	if i < 0 || i > last-first {
		return netip.Addr{}, false
	}
	return netip.AddrFrom4([4]byte{10, 0, 2, byte(first + i)}), true
}

// lowerName returns a DNS name in lower case. It changes only ASCII letters:
// strings.ToLower would turn some other names into different ones.
func lowerName(name string) string {
	low := []byte(name)
	for i, c := range low {
		if c >= 'A' && c <= 'Z' {
			low[i] = c + 'a' - 'A'
		}
	}
	return string(low)
}
