package proxy

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/internal/test/needs"
)

// TestMayDial: the forwarder dials only public addresses and those in AllowPrivate, however they
// are written.
func TestMayDial(t *testing.T) {
	none := func() []netip.Addr { return nil }
	for a := range strings.FieldsSeq(`
		1.1.1.1 8.8.8.8 100.63.255.255 100.128.0.0 172.15.0.1 172.32.0.1 192.169.0.1 223.255.255.255 [2606:4700:4700::1111]
		[2001:4860:4860::8888] [2a00::1] [::ffff:1.1.1.1] [64:ff9b::1.1.1.1] [2002:101:101::]`) {
		assert.NoError(t, checkDial(a+":80", nil, none), a)
	}
	for a := range strings.FieldsSeq(`
		127.0.0.1 127.255.255.255 0.0.0.0 0.1.2.3 10.0.0.1 100.64.0.1 100.100.100.200 169.254.169.254 169.254.170.2 172.16.0.1
		172.31.255.255 192.0.0.192 192.0.2.1 192.168.0.1 192.88.99.1 198.18.0.1 198.51.100.1 203.0.113.1 224.0.0.1
		239.255.255.255 240.0.0.1 255.255.255.255 168.63.129.16 [::1] [::] [::ffff:127.0.0.1] [::ffff:169.254.169.254]
		[::127.0.0.1] [::ffff:0:127.0.0.1] [64:ff9b::7f00:1] [64:ff9b::a9fe:a9fe] [64:ff9b:1::1] [2002:7f00:1::] [2002:a9fe:a9fe::1]
		[2001::1] [fec0::1] [fc00::1] [fd00:ec2::254] [fe80::1] [fe80::1%eth0] [::1%lo] [2606:4700::1%eth0] [ff02::1]
		[2001:db8::1] [3fff::1] [100::1] [5f00::1] [4000::1] [::2] localhost 2130706433 [::ffff:127.0.0.1%lo]`) {
		assert.ErrorIs(t, checkDial(a+":80", nil, none), errPrivateAddress, a)
	}
	for _, a := range []string{"", "127.0.0.1", "x:y"} {
		assert.Error(t, checkDial(a, nil, none), a)
	}
	allowed := []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("fd00::/8"), netip.MustParsePrefix("fe80::/10")}
	for a, ok := range map[string]bool{
		"1.1.1.1": true, "10.1.2.3": true, "[::ffff:10.1.2.3]": true, "[fd00::1]": true, "[fe80::1%eth0]": true,
		"10.2.0.1": false, "127.0.0.1": false, "[64:ff9b::10.1.0.1]": false, "[2002:a01:1::]": false, "[::10.1.0.1]": false,
	} {
		assert.Equal(t, ok, checkDial(a+":80", allowed, none) == nil, a)
	}
	own := func() []netip.Addr {
		return []netip.Addr{netip.MustParseAddr("52.1.2.3"), netip.MustParseAddr("2600:1f18::aa")}
	}
	for _, a := range []string{"52.1.2.3:80", "[2600:1f18::aa]:80", "[::ffff:52.1.2.3]:80"} {
		require.ErrorIs(t, checkDial(a, nil, own), errPrivateAddress, a)
		require.NoError(t, checkDial(a, []netip.Prefix{netip.MustParsePrefix("52.1.2.3/32"), netip.MustParsePrefix("2600:1f18::/32")}, own), a)
	}
}

// TestOwnAddresses: a forwarder refuses a public address of this machine.
func TestOwnAddresses(t *testing.T) {
	f, err := NewForwarder(nil)
	require.NoError(t, err)
	assert.Contains(t, f.own.get(), netip.MustParseAddr("127.0.0.1"), "every machine has this one")
	f.own.list = append(f.own.list, netip.MustParseAddr("192.31.196.1"))
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	w := httptest.NewRecorder()
	f.ServeHTTP(w, httptest.NewRequest("GET", "http://192.31.196.1/", nil).WithContext(context.WithValue(ctx, metaKey{}, Meta{TeamID: "team"})))
	assert.Equal(t, http.StatusForbidden, w.Code)
}

// TestIdleConnectionsAreBounded: the number of idle connections is limited, however many hosts
// a sandbox uses.
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
	for i := range 300 {
		host := fmt.Sprintf("127.0.%d.%d:%d", 1+i/200, 1+i%200, l.Addr().(*net.TCPAddr).Port)
		w := httptest.NewRecorder()
		f.ServeHTTP(w, httptest.NewRequest("GET", "http://"+host+"/", nil).WithContext(context.WithValue(t.Context(), metaKey{}, Meta{TeamID: "team"})))
		require.Equal(t, 200, w.Code)
	}
	assert.Eventually(t, func() bool { return open.Load() <= 256 }, time.Minute, 10*time.Millisecond, "%d connections", open.Load())
}
