package firewall

import (
	"context"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// fixedFilter is a filter. It knows the address of one name and leaves another name to the
// machine's resolver, or all others if it is open. It allows every connection, so it
// causes no refusal.
type fixedFilter struct{ open bool }

func (g fixedFilter) lookup(name string) (netip.Addr, bool) {
	switch name {
	case "known.test":
		return netip.MustParseAddr("192.0.2.7"), true
	case "passed.test":
		return netip.Addr{}, true
	}
	return netip.Addr{}, g.open
}

func (fixedFilter) connect(netip.AddrPort) verdict                  { return pass }
func (fixedFilter) send(netip.AddrPort) bool                        { return true }
func (fixedFilter) serve(context.Context, net.Conn, netip.AddrPort) {}

// dnsQuery returns a query for the address of a name.
func dnsQuery(name string) []byte {
	msg := []byte{0, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0}
	for label := range strings.SplitSeq(name, ".") {
		msg = append(append(msg, byte(len(label))), label...)
	}
	return append(msg, 0, 0, typeA, 0, 1)
}

// TestDNSQueries: a sandbox's query reaches the machine's resolver only for a name that may
// be looked up. Any other message is answered without that resolver, however short it is.
func TestDNSQueries(t *testing.T) {
	const passed, ignored, answered = "passed to the machine's", "ignored", "answered"
	ask := func(filter filter, msg []byte) (outcome string, code byte, records byte) {
		answer := (&NAT{filter: filter}).resolve(msg)
		switch {
		case answer == nil:
			return passed, 0, 0
		case len(answer) == 0:
			return ignored, 0, 0
		}
		assert.Equal(t, msg[:2], answer[:2], "its number")
		assert.Equal(t, byte(0x80), answer[2]&0x80, "a response")
		return answered, answer[3] & 15, answer[7]
	}
	with := func(at int, value byte) []byte {
		msg := dnsQuery("passed.test")
		msg[at] = value
		return msg
	}
	for name, row := range map[string]struct {
		msg           []byte
		outcome       string
		code, records byte
	}{
		"a name of the machine's":  {dnsQuery("passed.test"), passed, 0, 0},
		"in capitals":              {dnsQuery("Passed.TEST"), passed, 0, 0},
		"a known name":             {dnsQuery("known.test"), answered, noError, 1},
		"another name":             {dnsQuery("secret.evil.test"), answered, noSuchName, 0},
		"a response":               {with(2, 0x81), answered, serverFailed, 0},
		"a status, not a query":    {with(2, 0x11), answered, serverFailed, 0},
		"a notification":           {with(2, 0x21), answered, serverFailed, 0},
		"an update":                {with(2, 0x29), answered, serverFailed, 0},
		"no question":              {with(5, 0), answered, serverFailed, 0},
		"two questions":            {with(5, 2), answered, serverFailed, 0},
		"257 questions":            {with(4, 1), answered, serverFailed, 0},
		"a label beyond the end":   {with(dnsHeader, 60), answered, serverFailed, 0},
		"a compressed name":        {with(dnsHeader, 0xc0), answered, serverFailed, 0},
		"a dot in a label":         {with(dnsHeader+1, '.'), answered, serverFailed, 0},
		"an end in a label":        {with(dnsHeader+1, 0), answered, serverFailed, 0},
		"a name without an end":    {dnsQuery("passed.test")[:dnsHeader+12], answered, serverFailed, 0},
		"a name without its kind":  {dnsQuery("passed.test")[:dnsHeader+13], answered, serverFailed, 0},
		"a header with nothing":    {dnsQuery("passed.test")[:dnsHeader], answered, serverFailed, 0},
		"nothing":                  {nil, ignored, 0, 0},
		"a byte":                   {dnsQuery("passed.test")[:1], ignored, 0, 0},
		"half a number of queries": {dnsQuery("passed.test")[:5], ignored, 0, 0},
		"less than a header":       {dnsQuery("passed.test")[:dnsHeader-1], ignored, 0, 0},
	} {
		outcome, code, records := ask(fixedFilter{}, row.msg)
		assert.Equal(t, row.outcome, outcome, name)
		assert.Equal(t, row.code, code, name)
		assert.Equal(t, row.records, records, name)
	}
	for _, msg := range [][]byte{nil, {0}, dnsQuery("secret.evil.test"), with(2, 0x11)} {
		outcome, _, _ := ask(nil, msg)
		assert.Equal(t, passed, outcome, "without a filter, everything")
	}
}

// TestNetworkVerdicts: the sandbox's resolver can be reached over TCP, where queries are not
// inspected, only if all names may be looked up, whichever addresses a filter allows.
func TestNetworkVerdicts(t *testing.T) {
	for _, row := range []struct {
		filter              filter
		resolver, elsewhere verdict
	}{{nil, pass, pass}, {fixedFilter{open: true}, pass, pass}, {fixedFilter{}, refuse, pass}} {
		n := &NAT{filter: row.filter}
		for _, port := range []uint16{53, 443, 853} {
			assert.Equal(t, row.resolver, n.verdict(netip.AddrPortFrom(ResolverAddr, port)), "%v: port %d", row.filter, port)
		}
		assert.Equal(t, row.elsewhere, n.verdict(netip.AddrPortFrom(HostAddr, 53)), "%v", row.filter)
	}
}
