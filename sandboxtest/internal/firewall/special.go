package firewall

import (
	"net"
	"net/netip"
	"slices"
)

// specialNets lead to the machine itself, to a link that it is on, or to nobody.
// fe80::/10 and the others also come embedded in addresses of translators.
var specialNets = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"), netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("169.254.0.0/16"), netip.MustParsePrefix("224.0.0.0/3"),
	netip.MustParsePrefix("::/96"), netip.MustParsePrefix("fe80::/10"), netip.MustParsePrefix("fec0::/10"), netip.MustParsePrefix("ff00::/8"),
}

// Of these, IPv4 addresses are a part.
var (
	translated = netip.MustParsePrefix("64:ff9b::/96") // NAT64
	sixToFour  = netip.MustParsePrefix("2002::/16")
)

// Special reports whether an address is none that a network policy can allow: the
// machine's own, a loopback, link-local, multicast or unspecified one, in either
// form. A box reaches the machine at [HostAddr] alone, which its policy is about.
func Special(addr netip.Addr) bool {
	if !addr.IsValid() {
		return true
	}
	addr = addr.Unmap().WithZone("")
	if in := addr.As16(); translated.Contains(addr) {
		addr = netip.AddrFrom4([4]byte(in[12:]))
	} else if sixToFour.Contains(addr) {
		addr = netip.AddrFrom4([4]byte(in[2:6]))
	}
	return slices.ContainsFunc(specialNets, func(n netip.Prefix) bool { return n.Contains(addr) }) || own(addr)
}

// own reports whether an address is one of this machine's, now.
func own(addr netip.Addr) bool {
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
