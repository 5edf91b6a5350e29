package firewall

import (
	"net"
	"net/netip"
	"slices"
)

// specialNets are networks that lead to the machine itself, to one of its links, or
// nowhere. The IPv6 networks also occur embedded in addresses of translators.
var specialNets = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"), netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("169.254.0.0/16"), netip.MustParsePrefix("224.0.0.0/3"),
	netip.MustParsePrefix("::/96"), netip.MustParsePrefix("fe80::/10"), netip.MustParsePrefix("fec0::/10"), netip.MustParsePrefix("ff00::/8"),
}

// These networks embed IPv4 addresses.
var (
	nat64     = netip.MustParsePrefix("64:ff9b::/96")
	sixToFour = netip.MustParsePrefix("2002::/16")
)

// isSpecial reports whether no network policy can allow an address. It is special if it is
// one of the machine's own, or a loopback, link-local, multicast or unspecified one, also
// if an IPv6 address embeds it. A sandbox reaches the machine only at [HostAddr], and its
// policy decides about that address.
func isSpecial(addr netip.Addr) bool {
	if !addr.IsValid() {
		return true
	}
	addr = addr.Unmap().WithZone("")
	if in := addr.As16(); nat64.Contains(addr) {
		addr = netip.AddrFrom4([4]byte(in[12:]))
	} else if sixToFour.Contains(addr) {
		addr = netip.AddrFrom4([4]byte(in[2:6]))
	}
	return slices.ContainsFunc(specialNets, func(n netip.Prefix) bool { return n.Contains(addr) }) || isOwn(addr)
}

// isOwn reports whether an address currently belongs to this machine.
func isOwn(addr netip.Addr) bool {
	addrs, err := net.InterfaceAddrs()
	return err != nil || slices.ContainsFunc(addrs, func(a net.Addr) bool {
		network, ok := a.(*net.IPNet)
		if !ok {
			return false
		}
		of, ok := netip.AddrFromSlice(network.IP)
		return ok && of.Unmap() == addr
	})
}
