package namespaces

import (
	"encoding/binary"
	"net/netip"
	"os"
	"strconv"
	"strings"
)

// onLoopbackOnly reports whether all listeners on a port of the calling thread's network
// use loopback addresses.
func onLoopbackOnly(port int) bool {
	found := false
	for _, table := range []string{"tcp", "tcp6"} {
		data, err := os.ReadFile("/proc/thread-self/net/" + table)
		if err != nil {
			continue // a kernel without IPv6
		}
		for line := range strings.Lines(string(data)) {
			addr, ok := listeningAddr(line)
			if !ok || int(addr.Port()) != port {
				continue
			}
			if found = true; !addr.Addr().Unmap().IsLoopback() {
				return false
			}
		}
	}
	return found
}

// listeningAddr parses a line of /proc/net/tcp or tcp6, in which each four bytes of an
// address are a number in the machine's byte order.
func listeningAddr(line string) (netip.AddrPort, bool) {
	const listening = "0A"
	fields := strings.Fields(line)
	if len(fields) < 4 || fields[3] != listening {
		return netip.AddrPort{}, false
	}
	hexAddr, hexPort, _ := strings.Cut(fields[1], ":")
	port, err := strconv.ParseUint(hexPort, 16, 16)
	if err != nil || len(hexAddr)%8 != 0 {
		return netip.AddrPort{}, false
	}
	var raw []byte
	for ; hexAddr != ""; hexAddr = hexAddr[8:] {
		word, err := strconv.ParseUint(hexAddr[:8], 16, 32)
		if err != nil {
			return netip.AddrPort{}, false
		}
		raw = binary.NativeEndian.AppendUint32(raw, uint32(word))
	}
	addr, ok := netip.AddrFromSlice(raw)
	return netip.AddrPortFrom(addr, uint16(port)), ok
}
