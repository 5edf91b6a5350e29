package proxy

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/internal/test/needs"
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
		assert.Equal(t, ok, mayDial(address, allowed, func() []netip.Addr { return nil }) == nil, address)
	}
}

// TestForwarderLooksAtWhatItDials has a name server that returns a public
// address to the first query, and the loopback address afterwards.
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
	asked.Store(1) // an earlier check of the name got the public address
	assert.Equal(t, http.StatusBadGateway, send())
	assert.Zero(t, hits.Load())
	assert.Equal(t, http.StatusOK, send(netip.MustParsePrefix("127.0.0.0/8")), "the rig works")
	assert.EqualValues(t, 1, hits.Load())
}

// dnsAnswer answers a question for an A record; others get an empty answer.
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

// TestMayDialAttacks: ways to write an address that is not public.
func TestMayDialAttacks(t *testing.T) {
	none := func() []netip.Addr { return nil }
	for a := range strings.FieldsSeq(`
		127.0.0.1:80 127.1.2.3:80 0.0.0.0:80 0.1.2.3:80 10.0.0.1:80 100.64.0.1:80 100.100.100.200:80 169.254.169.254:80
		169.254.170.2:80 172.16.0.1:80 172.31.255.255:80 192.0.0.1:80 192.0.0.192:80 192.0.2.1:80 192.168.0.1:80
		192.88.99.1:80 198.18.0.1:80 198.19.255.255:80 198.51.100.1:80 203.0.113.1:80 224.0.0.1:80 239.255.255.255:80
		240.0.0.1:80 255.255.255.255:80 168.63.129.16:80 [::1]:80 [::]:80 [::ffff:127.0.0.1]:80 [::ffff:7f00:1]:80
		[::ffff:169.254.169.254]:80 [::127.0.0.1]:80 [::ffff:0:127.0.0.1]:80 [64:ff9b::7f00:1]:80 [64:ff9b::a9fe:a9fe]:80
		[64:ff9b::10.0.0.1]:80 [64:ff9b:1::7f00:1]:80 [2002:7f00:1::]:80 [2002:a9fe:a9fe::1]:80 [2002:c0a8:101::1]:80
		[2001::1]:80 [2001:0:7f00:1::]:80 [fec0::1]:80 [feff::1]:80 [fc00::1]:80 [fd00:ec2::254]:80 [fd20:ce::254]:80
		[fe80::1]:80 [fe80::1%eth0]:80 [fe80::1%lo]:80 [::1%lo]:80 [2606:4700::1%eth0]:80 [ff02::1]:80 [ff05::2]:80
		[2001:db8::1]:80 [3fff::1]:80 [100::1]:80 [100:0:0:1::1]:80 [5f00::1]:80 [4000::1]:80 [1::1]:80 [::2]:80
		localhost:80 127.0.0.1 x:y 2130706433:80 [::ffff:127.0.0.1%lo]:80`) {
		assert.Error(t, mayDial(a, nil, none), a)
	}
	assert.Error(t, mayDial("", nil, none))
	allowed := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	for _, a := range []string{"127.0.0.1:80", "[64:ff9b::10.0.0.1]:80", "[2002:a00:1::]:80", "[::10.0.0.1]:80"} {
		assert.Error(t, mayDial(a, allowed, none), a)
	}
}

// TestOwnAddresses: a public address may belong to this machine.
func TestOwnAddresses(t *testing.T) {
	own := func() []netip.Addr {
		return []netip.Addr{netip.MustParseAddr("52.1.2.3"), netip.MustParseAddr("2600:1f18::aa")}
	}
	for _, a := range []string{"52.1.2.3:80", "[2600:1f18::aa]:80", "[::ffff:52.1.2.3]:80"} {
		assert.ErrorIs(t, mayDial(a, nil, own), errPrivateAddress, a)
		assert.NoError(t, mayDial(a, []netip.Prefix{netip.MustParsePrefix("52.1.2.3/32"), netip.MustParsePrefix("2600:1f18::/32")}, own), a)
	}
	assert.NoError(t, mayDial("52.1.2.4:80", nil, own))

	var here ownAddresses
	assert.Contains(t, here.get(), netip.MustParseAddr("127.0.0.1"), "every machine has this one")
}

// inNamespace marks a process of this test that runs in a network of its own.
const inNamespace = "PROXY_TEST_IN_NAMESPACE"

// TestOwnPublicAddressIsRefused gives this machine public addresses, in a
// network of its own.
func TestOwnPublicAddressIsRefused(t *testing.T) {
	if os.Getenv(inNamespace) == "" {
		needs.Programs(t, "unshare", "ip")
		if err := exec.Command("unshare", "-rn", "true").Run(); err != nil {
			needs.Missing(t, "the right to make a network namespace")
		}
		cmd := exec.CommandContext(t.Context(), "unshare", "-rn", os.Args[0], "-test.run=^TestOwnPublicAddressIsRefused$", "-test.v")
		cmd.Env = append(os.Environ(), inNamespace+"=1")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		assert.Contains(t, string(out), "--- PASS: TestOwnPublicAddressIsRefused")
		return
	}
	out, err := exec.Command("sh", "-ec", "ip link set lo up; ip -6 addr add 2600:1f18::aa/128 dev lo nodad; ip addr add 52.1.2.3/32 dev lo").CombinedOutput()
	require.NoError(t, err, "%s", out)
	l, err := net.Listen("tcp", ":0")
	require.NoError(t, err)
	inside := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("inside")) })}
	go func() { _ = inside.Serve(l) }()
	defer inside.Close()
	port := strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
	for _, host := range []string{"52.1.2.3", "[2600:1f18::aa]"} {
		// The kernel makes the route to a new address in the background.
		require.Eventually(t, func() bool {
			conn, err := net.Dial("tcp", host+":"+port)
			if err == nil {
				conn.Close()
			}
			return err == nil
		}, time.Minute, 10*time.Millisecond)
		for _, allow := range [][]netip.Prefix{nil, {netip.MustParsePrefix("52.1.2.3/32"), netip.MustParsePrefix("2600:1f18::aa/128")}} {
			f, err := NewForwarder(&ForwarderOptions{AllowPrivate: allow})
			require.NoError(t, err)
			r := httptest.NewRequest("GET", "http://"+host+":"+port+"/", nil)
			w := httptest.NewRecorder()
			f.ServeHTTP(w, r.WithContext(context.WithValue(t.Context(), metaKey{}, Meta{TeamID: "team"})))
			f.CloseIdleConnections()
			assert.Equal(t, allow != nil, w.Body.String() == "inside", "%s: %d %s", host, w.Code, w.Body)
		}
	}
}

// TestIdleConnectionsAreBounded: a sandbox can invent any number of hosts.
func TestIdleConnectionsAreBounded(t *testing.T) {
	if runtime.GOOS != "linux" {
		needs.Missing(t, "all of 127.0.0.0/8 to be this machine's, as on Linux")
	}
	var open atomic.Int64
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	srv.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		switch state {
		case http.StateNew:
			open.Add(1)
		case http.StateClosed:
			open.Add(-1)
		}
	}
	l, err := net.Listen("tcp", "0.0.0.0:0")
	require.NoError(t, err)
	srv.Listener.Close()
	srv.Listener = l
	srv.Start()
	defer srv.Close()
	f, err := NewForwarder(&ForwarderOptions{AllowPrivate: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})
	require.NoError(t, err)
	defer f.CloseIdleConnections()
	for i := range 600 {
		host := fmt.Sprintf("127.0.%d.%d:%d", 1+i/200, 1+i%200, l.Addr().(*net.TCPAddr).Port)
		w := httptest.NewRecorder()
		f.ServeHTTP(w, httptest.NewRequest("GET", "http://"+host+"/", nil).WithContext(context.WithValue(t.Context(), metaKey{}, Meta{TeamID: "team"})))
		require.Equal(t, 200, w.Code)
	}
	assert.Eventually(t, func() bool { return open.Load() <= 256 }, time.Minute, 10*time.Millisecond, "%d connections", open.Load())
}
