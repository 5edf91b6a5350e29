package firewall

import (
	"net"
	"net/netip"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// ownAddrs returns addresses of this machine other than loopback.
func ownAddrs(t *testing.T) (own []netip.Addr) {
	t.Helper()
	addrs, err := net.InterfaceAddrs()
	require.NoError(t, err)
	for _, a := range addrs {
		if addr, ok := netip.AddrFromSlice(a.(*net.IPNet).IP); ok && !addr.Unmap().IsLoopback() {
			own = append(own, addr.Unmap())
		}
	}
	return own
}

func TestSpecialAddresses(t *testing.T) {
	for _, text := range []string{
		"0.0.0.0", "0.1.2.3", "127.0.0.1", "127.255.0.1", "169.254.169.254", "224.0.0.1", "239.1.1.1", "240.0.0.1", "255.255.255.255",
		"::", "::1", "::127.0.0.1", "::ffff:127.0.0.1", "::ffff:0.0.0.0", "64:ff9b::7f00:1", "64:ff9b::169.254.169.254", "2002:7f00:1::", "fe80::1", "fe80::1%lo", "fec0::1", "ff02::1",
	} {
		assert.True(t, isSpecial(netip.MustParseAddr(text)), text)
	}
	for _, addr := range ownAddrs(t) {
		assert.True(t, isSpecial(addr), addr)
	}
	assert.True(t, isSpecial(netip.Addr{}))
	for _, text := range []string{"192.0.2.7", "10.0.2.2", "10.9.8.7", "192.168.250.250", "8.8.8.8", "::ffff:8.8.8.8", "2001:db8::1", "64:ff9b::808:808", "fd12::1"} {
		assert.False(t, isSpecial(netip.MustParseAddr(text)), text)
	}
}

// listening returns ports of this machine's loopback interface: one accepts connections,
// the other echoes datagrams.
func listening(t *testing.T) (tcp, udp int) {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	p, err := net.ListenPacket("udp4", "127.0.0.1:0")
	require.NoError(t, err)
	var back sync.WaitGroup
	back.Go(func() {
		buf := make([]byte, MTU)
		for {
			n, from, err := p.ReadFrom(buf)
			if err != nil {
				return
			}
			_, _ = p.WriteTo(buf[:n], from)
		}
	})
	t.Cleanup(func() { assert.NoError(t, l.Close()); assert.NoError(t, p.Close()); back.Wait() })
	return l.Addr().(*net.TCPAddr).Port, p.LocalAddr().(*net.UDPAddr).Port
}

// TestPacketsToSpecialAddresses: packets that a sandbox writes itself reach no service of the
// machine, whatever the policy says.
func TestPacketsToSpecialAddresses(t *testing.T) {
	tcp, udp := listening(t)
	var log buffer
	for name, filter := range map[string]filter{"no policy": nil, "all is allowed": fixedFilter{open: true}} {
		t.Run(name, func(t *testing.T) {
			n, box := openNAT(t, filter, &log)
			to := []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("127.0.0.53"), netip.MustParseAddr("0.0.0.0"), netip.MustParseAddr("169.254.169.254"), netip.MustParseAddr("224.0.0.1")}
			for _, addr := range ownAddrs(t) {
				if addr.Is4() {
					to = append(to, addr)
				}
			}
			send := func(data []byte) packet {
				t.Helper()
				_, err := box.Write(data)
				require.NoError(t, err)
				buf := make([]byte, MTU)
				size, err := box.Read(buf)
				require.NoError(t, err)
				p, ok := parsePacket(buf[:size])
				require.True(t, ok)
				return p
			}
			for i, addr := range to {
				from := netip.AddrPortFrom(BoxAddr, uint16(5000+i))
				p := send(syn(from, netip.AddrPortFrom(addr, uint16(tcp))))
				assert.Equal(t, byte(flagRST|flagACK), p.tcpFlags(), "%v by TCP", addr)
				_, err := box.Write(datagram(from, netip.AddrPortFrom(addr, uint16(udp)), []byte("hello")))
				require.NoError(t, err)
			}
			// The sandbox has another name for the machine, which does reach it. No earlier
			// datagram has been answered.
			p := send(datagram(netip.AddrPortFrom(BoxAddr, 4999), netip.AddrPortFrom(HostAddr, uint16(udp)), []byte("hello")))
			assert.Equal(t, netip.AddrPortFrom(HostAddr, uint16(udp)), p.src())
			n.mu.Lock()
			defer n.mu.Unlock()
			assert.Len(t, n.udp, 1)
		})
	}
}
