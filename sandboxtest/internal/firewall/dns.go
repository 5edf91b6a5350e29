package firewall

import (
	"encoding/binary"
	"net/netip"
	"strings"
)

// dnsHeader is the length of the header of a DNS message.
const dnsHeader = 12

// The types of records, and the response codes.
const (
	typeA        = 1
	typeAny      = 255
	noError      = 0
	serverFailed = 2
	noSuchName   = 3
)

// question is the one question of a DNS message.
type question struct {
	name string // in lower case, without the last dot
	kind uint16
	end  int // where it ends in the message
}

// parseQuestion reads a query with one question, which is what resolvers send.
func parseQuestion(msg []byte) (q question, ok bool) {
	if len(msg) < dnsHeader || msg[2]&0xf8 != 0 || binary.BigEndian.Uint16(msg[4:]) != 1 {
		return question{}, false
	}
	var labels []string
	at := dnsHeader
	for {
		if at >= len(msg) {
			return question{}, false
		}
		size := int(msg[at])
		at++
		if size == 0 {
			break
		}
		if size > 63 || at+size > len(msg) { // no compression in a question
			return question{}, false
		}
		label := string(msg[at : at+size])
		if strings.ContainsAny(label, ".\x00") {
			return question{}, false
		}
		labels = append(labels, label)
		at += size
	}
	if at+4 > len(msg) {
		return question{}, false
	}
	return question{lowerName(strings.Join(labels, ".")), binary.BigEndian.Uint16(msg[at:]), at + 4}, true
}

// dnsAnswer answers a query without asking another resolver: with an address, or with a
// response code and no record.
func dnsAnswer(msg []byte, q question, outcome byte, addr netip.Addr) []byte {
	out := append([]byte(nil), msg[:max(q.end, dnsHeader)]...)
	out[2] = out[2]&0x01 | 0x84 // a response, with authority
	out[3] = 0x80 | outcome     // recursion available
	clear(out[6:dnsHeader])
	if q.end == 0 {
		clear(out[4:6])
		return out
	}
	if addr.IsValid() && outcome == noError && (q.kind == typeA || q.kind == typeAny) {
		out[7] = 1
		out = append(out, 0xc0, dnsHeader, 0, typeA, 0, 1, 0, 0, 0, 5, 0, 4)
		out = append(out, addr.AsSlice()...)
	}
	return out
}

// resolve answers a DNS query of the sandbox. It returns nil if the machine's resolver has
// to answer. If the query is too short for an answer, the answer is empty.
func (n *NAT) resolve(msg []byte) (answer []byte) {
	if n.filter == nil {
		return nil
	}
	q, ok := parseQuestion(msg)
	if !ok {
		if len(msg) < dnsHeader {
			return []byte{}
		}
		return dnsAnswer(msg, question{}, serverFailed, netip.Addr{})
	}
	addr, ok := n.filter.lookup(q.name)
	switch {
	case !ok:
		return dnsAnswer(msg, q, noSuchName, netip.Addr{})
	case addr.IsValid():
		return dnsAnswer(msg, q, noError, addr)
	}
	return nil
}
