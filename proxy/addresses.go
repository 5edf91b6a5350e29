package proxy

import (
	"errors"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// errPrivateAddress is the error of a connection that checkDial refuses.
var errPrivateAddress = errors.New("proxy: the address is not a public one")

// specialIPv4 lists the IPv4 networks that are not part of the public internet: those of the
// IANA registry of special addresses, and the address of Azure's metadata service.
var specialIPv4 = parsePrefixes(
	"0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16",
	"172.16.0.0/12", "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16",
	"198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4",
	"168.63.129.16/32",
)

// Of IPv6 only 2000::/3 is part of the public internet, except specialIPv6.
var (
	publicIPv6  = netip.MustParsePrefix("2000::/3")
	specialIPv6 = parsePrefixes("2001::/23", "2001:db8::/32", "3fff::/20")
	// Addresses in these networks embed an IPv4 address.
	nat64     = netip.MustParsePrefix("64:ff9b::/96") // NAT64
	sixToFour = netip.MustParsePrefix("2002::/16")
)

func parsePrefixes(list ...string) []netip.Prefix {
	p := make([]netip.Prefix, len(list))
	for i, s := range list {
		p[i] = netip.MustParsePrefix(s)
	}
	return p
}

func anyContains(list []netip.Prefix, a netip.Addr) bool {
	return slices.ContainsFunc(list, func(p netip.Prefix) bool { return p.Contains(a) })
}

// isPublic reports whether an address belongs to the public internet. Loopback,
// private, shared, link-local (including the clouds' metadata services),
// multicast, reserved and documentation addresses do not, even if embedded in
// IPv6.
func isPublic(a netip.Addr) bool {
	a = a.Unmap()
	switch {
	case !a.IsValid() || a.Zone() != "":
		return false
	case a.Is4():
		return !anyContains(specialIPv4, a)
	case nat64.Contains(a):
		b := a.As16()
		return isPublic(netip.AddrFrom4([4]byte(b[12:16])))
	case sixToFour.Contains(a):
		b := a.As16()
		return isPublic(netip.AddrFrom4([4]byte(b[2:6])))
	}
	return publicIPv6.Contains(a) && !anyContains(specialIPv6, a)
}

// checkDial returns an error if the forwarder must not connect to an address. The forwarder
// calls it for each connection, because a name may resolve to another address each time.
// own returns the addresses of this machine.
func checkDial(address string, allowed []netip.Prefix, own func() []netip.Addr) error {
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return errPrivateAddress
	}
	a := to.Addr().Unmap()
	if anyContains(allowed, a.WithZone("")) || isPublic(a) && !slices.Contains(own(), a) {
		return nil
	}
	return errPrivateAddress
}

// ownAddresses caches the addresses of this machine's interfaces. One of them may be public.
// A connection to it from this machine would bypass the firewall in front of the machine.
type ownAddresses struct {
	mu       sync.Mutex
	list     []netip.Addr
	listedAt time.Time
}

// ownAddressesKept is how long the list is cached. Listing costs a system call.
const ownAddressesKept = time.Minute

func (o *ownAddresses) get() []netip.Addr {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.listedAt.IsZero() && time.Since(o.listedAt) < ownAddressesKept {
		return o.list
	}
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return o.list // some serverless platforms don't list interfaces
	}
	o.list = nil
	for _, a := range addrs {
		if ipNet, ok := a.(*net.IPNet); ok {
			if ip, ok := netip.AddrFromSlice(ipNet.IP); ok {
				o.list = append(o.list, ip.Unmap())
			}
		}
	}
	o.listedAt = time.Now()
	return o.list
}
