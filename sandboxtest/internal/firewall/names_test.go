package firewall

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/proxy/proxytest"
)

// TestNamesOfSpecialAddresses: a program in a sandbox may claim any name for a server,
// but only the machine's own name leads to the machine.
func TestNamesOfSpecialAddresses(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, l.Close()) })
	s, err := NewSite(Options{Names: map[string]string{"api.example.com": l.Addr().String()}, Log: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	hostname, err := os.Hostname()
	require.NoError(t, err)
	port := uint16(l.Addr().(*net.TCPAddr).Port)
	for _, policy := range []*Policy{{Mode: AllowAll}, {Mode: Custom, domains: []string{"*"}, allow: prefixes([]string{"0.0.0.0/0", "::/0"})}} {
		f := s.New(t.Context(), proxytest.Claims{}, policy)
		dial := func(name string) error {
			conn, err := f.dial(context.Background(), name, netip.AddrPortFrom(netip.MustParseAddr("192.0.2.7"), port))
			if err == nil {
				err = conn.Close()
			}
			return err
		}
		for _, name := range []string{"localhost", "LOCALHOST.", "127.0.0.1", "127.0.0.2", "0.0.0.0", "::1", "::", "::ffff:127.0.0.1", "169.254.169.254", hostname} {
			assert.Error(t, dial(name), name)
		}
		for _, name := range []string{HostName, "api.example.com"} {
			assert.NoError(t, dial(name), name)
		}
		f.Close()
	}
}
