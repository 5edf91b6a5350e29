package proxy

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestIsPublic(t *testing.T) {
	for _, a := range []string{
		"1.1.1.1", "8.8.8.8", "100.63.255.255", "100.128.0.0", "172.15.0.1", "172.32.0.1", "192.169.0.1", "223.255.255.255",
		"2606:4700:4700::1111", "2001:4860:4860::8888", "2a00::1", "::ffff:1.1.1.1", "64:ff9b::1.1.1.1", "2002:101:101::",
	} {
		assert.True(t, isPublic(netip.MustParseAddr(a)), a)
	}
	for _, a := range []string{
		"0.0.0.0", "0.1.2.3", "10.0.0.1", "100.64.0.1", "100.100.100.200", "127.0.0.1", "127.255.255.255", "169.254.169.254",
		"169.254.170.2", "172.16.0.1", "172.31.255.255", "192.0.0.192", "192.0.2.1", "192.168.1.1", "198.18.0.1", "198.51.100.1",
		"203.0.113.1", "224.0.0.1", "239.255.255.255", "240.0.0.1", "255.255.255.255", "168.63.129.16",
		"::", "::1", "::ffff:127.0.0.1", "::ffff:169.254.169.254", "::127.0.0.1", "64:ff9b::127.0.0.1", "64:ff9b::169.254.169.254",
		"64:ff9b:1::1", "100::1", "2001::1", "2001:db8::1", "2002:7f00:1::", "2002:a9fe:a9fe::1", "3fff::1", "5f00::1",
		"fc00::1", "fd00:ec2::254", "fe80::1", "fe80::1%eth0", "fec0::1", "ff02::1", "4000::1",
	} {
		assert.False(t, isPublic(netip.MustParseAddr(a)), a)
	}
	assert.False(t, isPublic(netip.Addr{}))
}

func TestMayDial(t *testing.T) {
	allowed := []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("fd00::/8"), netip.MustParsePrefix("fe80::/10")}
	for address, ok := range map[string]bool{
		"1.1.1.1:443": true, "10.1.2.3:80": true, "[::ffff:10.1.2.3]:80": true, "[fd00::1]:80": true, "[fe80::1%eth0]:80": true,
		"10.2.0.1:80": false, "127.0.0.1:80": false, "[fc00::1]:80": false, "localhost:80": false, "": false,
	} {
		assert.Equal(t, ok, mayDial(address, allowed) == nil, address)
	}
}

// TestForwarderLooksAtWhatItDials has a name server that gives a public address
// to whoever asks first, and the loopback address afterwards.
func TestForwarderLooksAtWhatItDials(t *testing.T) {
	dns, err := net.ListenPacket("udp", "127.0.0.1:0")
	require.NoError(t, err)
	defer dns.Close()
	var asked atomic.Int64
	go func() {
		b := make([]byte, 512)
		for {
			n, from, err := dns.ReadFrom(b)
			if err != nil {
				return
			}
			_, _ = dns.WriteTo(dnsAnswer(b[:n], func() [4]byte {
				if asked.Add(1) == 1 {
					return [4]byte{1, 1, 1, 1}
				}
				return [4]byte{127, 0, 0, 1}
			}), from)
		}
	}()
	var hits atomic.Int64
	inside := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { hits.Add(1) }))
	defer inside.Close()
	_, port, err := net.SplitHostPort(inside.Listener.Addr().String())
	require.NoError(t, err)

	send := func(allow ...netip.Prefix) int {
		f, err := NewForwarder(&ForwarderOptions{AllowPrivate: allow})
		require.NoError(t, err)
		defer f.CloseIdleConnections()
		f.dialer.Resolver = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "udp", dns.LocalAddr().String())
		}}
		r := httptest.NewRequest("GET", "http://rebinding.example:"+port+"/", nil)
		r = r.WithContext(context.WithValue(t.Context(), metaKey{}, Meta{TeamID: "team"}))
		w := httptest.NewRecorder()
		f.ServeHTTP(w, r)
		return w.Code
	}
	asked.Store(1) // whoever checked the name before has had the public address
	assert.Equal(t, http.StatusForbidden, send())
	assert.Zero(t, hits.Load())
	assert.Equal(t, http.StatusOK, send(netip.MustParsePrefix("127.0.0.0/8")), "the rig works")
	assert.EqualValues(t, 1, hits.Load())
}

// dnsAnswer answers a question for an A record; others get none.
func dnsAnswer(query []byte, address func() [4]byte) []byte {
	if len(query) < 12 {
		return nil
	}
	end := 12
	for end < len(query) && query[end] != 0 {
		end += int(query[end]) + 1
	}
	end += 5 // the root, type and class
	if end > len(query) {
		return nil
	}
	answer := append([]byte(nil), query[:end]...)
	answer[2], answer[3] = 0x81, 0x80
	copy(answer[6:12], []byte{0, 0, 0, 0, 0, 0})
	if query[end-3] == 1 {
		answer[7] = 1
		answer = append(answer, 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4)
		a := address()
		answer = append(answer, a[:]...)
	}
	return answer
}
