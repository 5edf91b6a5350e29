package firewall

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// FuzzPacket: any packet of a sandbox is refused, or translated so that it can be parsed
// again.
func FuzzPacket(f *testing.F) {
	from, to := netip.AddrPortFrom(BoxAddr, 4000), netip.MustParseAddrPort("192.0.2.7:443")
	short := syn(from, to)
	short[2], short[3] = 0, 0 // a length of nothing
	for _, seed := range [][]byte{syn(from, to), short, datagram(from, netip.AddrPortFrom(ResolverAddr, 53), dnsQuery("a.test")), datagram(from, to, nil)} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		p, ok := parsePacket(append([]byte(nil), data...))
		if !ok {
			return
		}
		src, dst := p.src(), p.dst()
		if p.proto() == protoUDP {
			p, ok = parsePacket(datagram(dst, src, p.payload()))
		} else {
			_, ok = parsePacket(refusal(p))
			require.True(t, ok)
			p.tcpFlags()
			p.rewrite(dst, src)
			p, ok = parsePacket(p.data)
		}
		require.True(t, ok)
		assert.Equal(t, dst, p.src())
		assert.Equal(t, src, p.dst())
	})
}

// FuzzQuestion: the name that the filter sees is the one that is looked up, and an answer
// contains the same question.
func FuzzQuestion(f *testing.F) {
	f.Add(dnsQuery("www.Example.com"))
	f.Add(dnsQuery("\u212aelvin.test"))
	f.Add(dnsQuery("\xff\xfe.test"))
	f.Fuzz(func(t *testing.T, msg []byte) {
		q, ok := parseQuestion(msg)
		if !ok {
			if len(msg) >= dnsHeader {
				_ = dnsAnswer(msg, question{}, serverFailed, netip.Addr{})
			}
			return
		}
		require.LessOrEqual(t, q.end, len(msg))
		if q.name != "" { // the root has no labels
			for i, label := range strings.Split(q.name, ".") {
				at := dnsHeader
				for range i {
					at += 1 + int(msg[at])
				}
				sent := string(msg[at+1 : at+1+int(msg[at])])
				assert.Len(t, label, len(sent))
				for j := range len(sent) {
					if sent[j] < 'A' || sent[j] > 'Z' {
						assert.Equal(t, sent[j], label[j])
					} else {
						assert.Equal(t, sent[j]+'a'-'A', label[j])
					}
				}
			}
		}
		for _, outcome := range []byte{noError, noSuchName} {
			answer := dnsAnswer(msg, q, outcome, netip.MustParseAddr("192.0.2.7"))
			answer[2] &^= 0xf8
			got, ok := parseQuestion(answer)
			require.True(t, ok)
			assert.Equal(t, q, got)
		}
	})
}
