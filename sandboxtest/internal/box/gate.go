package box

import (
	"context"
	"net"
	"net/netip"
)

// Gate decides what leaves the boxes that have a network of their own. Its
// methods are called concurrently.
type Gate interface {
	// Lookup reports whether a name may be looked up, and its IPv4 address in the
	// box. An invalid address means that of the machine's resolver.
	Lookup(name string) (addr netip.Addr, ok bool)
	// Connect decides about a TCP connection.
	Connect(to netip.AddrPort) Verdict
	// Send decides about datagrams, except to the box's resolver.
	Send(to netip.AddrPort) bool
	// Serve takes over a connection to inspect, and closes it. It returns when
	// the connection is over, and soon after ctx ends.
	Serve(ctx context.Context, conn net.Conn, to netip.AddrPort)
}

// LowerName is a name of DNS in lower case. Only the letters of ASCII have one:
// strings.ToLower would make other names of some, which are not those that are
// looked up.
func LowerName(name string) string {
	low := []byte(name)
	for i, c := range low {
		if c >= 'A' && c <= 'Z' {
			low[i] = c + 'a' - 'A'
		}
	}
	return string(low)
}

// Verdict is a Gate's decision about a connection.
type Verdict int

// The verdicts.
const (
	// Refuse answers "connection refused".
	Refuse Verdict = iota
	// Pass connects the box to its destination.
	Pass
	// Inspect accepts the connection and leaves it to Gate.Serve.
	Inspect
)

// HostAddr is the address of the machine in the network of a box.
var HostAddr = netip.MustParseAddr("10.0.2.2")

// NamedAddr returns the address, in the network of a box, of the i-th name to
// which a Gate gives an address of its own; false if there are no more.
func NamedAddr(i int) (netip.Addr, bool) {
	const first, last = 64, 254
	if i < 0 || i > last-first {
		return netip.Addr{}, false
	}
	return netip.AddrFrom4([4]byte{10, 0, 2, byte(first + i)}), true
}
