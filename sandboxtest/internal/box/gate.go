package box

import (
	"context"
	"net"
	"net/netip"
)

// Gate decides what leaves the boxes that have a network of their own. Its
// methods are called concurrently.
type Gate interface {
	// Lookup says whether a name may be looked up, and gives the IPv4 address
	// that it has in the box. An invalid address means the one that the
	// machine's resolver knows.
	Lookup(name string) (addr netip.Addr, ok bool)
	// Connect decides about a TCP connection.
	Connect(to netip.AddrPort) Verdict
	// Send decides about datagrams, except to the box's resolver.
	Send(to netip.AddrPort) bool
	// Serve takes over a connection that was to be inspected, and closes it. It
	// returns when the connection is over, and soon after ctx ends.
	Serve(ctx context.Context, conn net.Conn, to netip.AddrPort)
}

// Verdict is what a Gate says about a connection.
type Verdict int

// The verdicts.
const (
	// Refuse answers "connection refused".
	Refuse Verdict = iota
	// Pass connects the box to where it wants to go.
	Pass
	// Inspect accepts the connection and leaves it to Gate.Serve.
	Inspect
)

// HostAddr is the address of the machine in the network of a box.
var HostAddr = netip.MustParseAddr("10.0.2.2")

// NamedAddr gives an address of the network of a box for the i-th name that a
// Gate wants an address of its own for, false when there are no more.
func NamedAddr(i int) (netip.Addr, bool) {
	const first, last = 64, 254
	if i < 0 || i > last-first {
		return netip.Addr{}, false
	}
	return netip.AddrFrom4([4]byte{10, 0, 2, byte(first + i)}), true
}
