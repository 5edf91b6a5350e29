package firewall

import (
	"encoding/binary"
	"net/netip"
)

// packet is an IPv4 packet with a complete TCP or UDP header.
type packet struct {
	data []byte // the whole packet
	head int    // length of the IP header
}

const (
	protoTCP  = 6
	protoUDP  = 17
	udpHeader = 8
	tcpHeader = 20

	flagSYN = 0x02
	flagRST = 0x04
	flagACK = 0x10
)

// parsePacket returns false for packets that can't be translated, such as fragments.
func parsePacket(data []byte) (packet, bool) {
	if len(data) < 20 || data[0]>>4 != 4 {
		return packet{}, false
	}
	p := packet{data: data, head: int(data[0]&15) * 4}
	total := int(binary.BigEndian.Uint16(data[2:]))
	fragment := binary.BigEndian.Uint16(data[6:]) & 0x3fff
	if p.head < 20 || total < p.head || total > len(data) || fragment != 0 {
		return packet{}, false
	}
	p.data = data[:total]
	need := map[byte]int{protoTCP: tcpHeader, protoUDP: udpHeader}[p.proto()]
	if need == 0 || total < p.head+need {
		return packet{}, false
	}
	return p, true
}

func (p packet) proto() byte { return p.data[9] }

func (p packet) src() netip.AddrPort { return p.addr(12, 0) }
func (p packet) dst() netip.AddrPort { return p.addr(16, 2) }

func (p packet) addr(ip, port int) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte(p.data[ip:ip+4])), binary.BigEndian.Uint16(p.data[p.head+port:]))
}

func (p packet) tcpFlags() byte { return p.data[p.head+13] }
func (p packet) payload() []byte {
	return p.data[p.head+udpHeader:]
}

// rewrite replaces both addresses of a TCP packet and updates its checksums.
func (p packet) rewrite(src, dst netip.AddrPort) {
	p.set(12, 0, src)
	p.set(16, 2, dst)
	p.updateChecksums()
}

func (p packet) set(ip, port int, to netip.AddrPort) {
	addr := to.Addr().As4()
	copy(p.data[ip:], addr[:])
	binary.BigEndian.PutUint16(p.data[p.head+port:], to.Port())
}

func (p packet) updateChecksums() {
	clear(p.data[10:12])
	binary.BigEndian.PutUint16(p.data[10:], ^fold(add(0, p.data[:p.head])))
	at := p.head + 16
	if p.proto() == protoUDP {
		at = p.head + 6
	}
	clear(p.data[at : at+2])
	// The pseudo header: addresses, protocol and length.
	acc := add(uint64(p.proto())+uint64(len(p.data)-p.head), p.data[12:20])
	sum := ^fold(add(acc, p.data[p.head:]))
	if sum == 0 && p.proto() == protoUDP {
		sum = 0xffff
	}
	binary.BigEndian.PutUint16(p.data[at:], sum)
}

// add sums big-endian words, and fold reduces the sum to 16 bits.
func add(acc uint64, data []byte) uint64 {
	for ; len(data) >= 4; data = data[4:] {
		acc += uint64(binary.BigEndian.Uint32(data))
	}
	if len(data) >= 2 {
		acc += uint64(binary.BigEndian.Uint16(data))
		data = data[2:]
	}
	if len(data) == 1 {
		acc += uint64(data[0]) << 8
	}
	return acc
}

func fold(acc uint64) uint16 {
	for acc > 0xffff {
		acc = acc>>16 + acc&0xffff
	}
	return uint16(acc)
}

// newPacket returns a packet with an empty header of its protocol.
func newPacket(proto byte, src, dst netip.AddrPort, header int, payload []byte) packet {
	data := make([]byte, 20+header+len(payload))
	data[0], data[8], data[9] = 0x45, 64, proto
	binary.BigEndian.PutUint16(data[2:], uint16(len(data)))
	copy(data[20+header:], payload)
	p := packet{data: data, head: 20}
	p.set(12, 0, src)
	p.set(16, 2, dst)
	return p
}

// datagram makes a UDP packet.
func datagram(src, dst netip.AddrPort, payload []byte) []byte {
	p := newPacket(protoUDP, src, dst, udpHeader, payload)
	binary.BigEndian.PutUint16(p.data[24:], uint16(udpHeader+len(payload)))
	p.updateChecksums()
	return p.data
}

// refusal returns a packet that refuses a SYN.
func refusal(syn packet) []byte {
	p := newPacket(protoTCP, syn.dst(), syn.src(), tcpHeader, nil)
	seq := binary.BigEndian.Uint32(syn.data[syn.head+4:])
	binary.BigEndian.PutUint32(p.data[28:], seq+1)
	p.data[32], p.data[33] = tcpHeader/4<<4, flagRST|flagACK
	p.updateChecksums()
	return p.data
}
