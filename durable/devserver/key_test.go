package devserver_test

import (
	"context"
	"crypto/tls"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/go-vercel/sandbox/durable/devserver"
	"github.com/go-vercel/sandbox/durable/internal/mutual"
	"github.com/go-vercel/sandbox/internal/test/needs"
)

// TestOnlyTheKey: none of the server's ports serves a client without the key in the folder.
// Only the folder's owner can read that key.
func TestOnlyTheKey(t *testing.T) {
	before := listeners(t)
	dir := filepath.Join(t.TempDir(), "there")
	require.NoError(t, os.Mkdir(dir, 0o755))
	srv, err := devserver.Start(t.Context(), dir, 0)
	require.NoError(t, err)
	defer func() { assert.NoError(t, srv.Close()) }()
	other, err := mutual.NewKey()
	require.NoError(t, err)
	stranger, err := mutual.Client(other)
	require.NoError(t, err)
	blind := &tls.Config{InsecureSkipVerify: true} //nolint:gosec // as an attacker does
	forged := stranger.Clone()
	forged.InsecureSkipVerify = true

	ports := slices.DeleteFunc(listeners(t), func(addr string) bool { return slices.Contains(before, addr) })
	require.GreaterOrEqual(t, len(ports), 4, "one port each for the frontend, history, matching and Temporal's worker")
	for _, port := range ports {
		for name, creds := range map[string]credentials.TransportCredentials{
			"in the clear": insecure.NewCredentials(), "without a certificate": credentials.NewTLS(blind), "with another one": credentials.NewTLS(forged),
		} {
			require.Error(t, systemInfo(t, port, creds), "%s %s", port, name)
		}
	}
	pem, err := os.ReadFile(filepath.Join(dir, devserver.KeyFile))
	require.NoError(t, err)
	mine, err := mutual.Client(pem)
	require.NoError(t, err)
	require.NoError(t, systemInfo(t, srv.Address(), credentials.NewTLS(mine)))
	for _, name := range []string{"", devserver.KeyFile} {
		info, err := os.Stat(filepath.Join(dir, name))
		require.NoError(t, err)
		assert.Zero(t, info.Mode().Perm()&0o077, "only its owner may use %s: %v", name, info.Mode())
	}
	_, err = client.DialContext(t.Context(), client.Options{HostPort: srv.Address(), Logger: quiet, ConnectionOptions: client.ConnectionOptions{GetSystemInfoTimeout: 5 * time.Second}})
	require.Error(t, err)
}

func systemInfo(t *testing.T, addr string, creds credentials.TransportCredentials) error {
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(creds))
	require.NoError(t, err)
	defer conn.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, err = workflowservice.NewWorkflowServiceClient(conn).GetSystemInfo(ctx, &workflowservice.GetSystemInfoRequest{})
	return err
}

// listeners returns the addresses at which this process listens.
func listeners(t *testing.T) (addrs []string) {
	t.Helper()
	table, err := os.ReadFile("/proc/self/net/tcp")
	if err != nil {
		needs.Other(t, "needs /proc to find the ports of a process")
	}
	mine := map[string]bool{}
	files, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	for _, f := range files {
		if to, err := os.Readlink("/proc/self/fd/" + f.Name()); err == nil && strings.HasPrefix(to, "socket:[") {
			mine[strings.TrimSuffix(strings.TrimPrefix(to, "socket:["), "]")] = true
		}
	}
	const listening = "0A"
	for line := range strings.Lines(string(table)) {
		f := strings.Fields(line)
		if len(f) < 10 || f[3] != listening || !mine[f[9]] {
			continue
		}
		_, hex, _ := strings.Cut(f[1], ":")
		port, err := strconv.ParseUint(hex, 16, 16)
		require.NoError(t, err)
		addrs = append(addrs, net.JoinHostPort("127.0.0.1", strconv.FormatUint(port, 10)))
	}
	return addrs
}
