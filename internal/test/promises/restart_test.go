package promises_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/internal/test/testkit"
	"github.com/go-vercel/sandbox/sandboxtest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// killableNetwork is the network of a program that is killed at one of its operations:
// before a connection, before, during or after a write, or after a read. Then its
// connections close, as when a process ends, and nothing more arrives.
type killableNetwork struct {
	kill context.CancelFunc // ends the program's context

	mu    sync.Mutex
	point int // the number of operations until the kill; never if negative
	dead  bool
	conns []net.Conn
}

var errKilled = errors.New("the program was killed")

// count counts an operation. It returns an error once the program is killed.
func (m *killableNetwork) count() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.dead = m.dead || m.point == 0; m.dead {
		m.kill()
		for _, conn := range m.conns {
			conn.Close()
		}
		return errKilled
	}
	m.point--
	return nil
}

func (m *killableNetwork) dial(ctx context.Context, network, address string) (net.Conn, error) {
	if err := m.count(); err != nil {
		return nil, err
	}
	var d net.Dialer
	conn, err := d.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.conns = append(m.conns, conn); m.dead {
		return nil, errors.Join(errKilled, conn.Close())
	}
	return &killableConn{conn, m}, nil
}

type killableConn struct {
	net.Conn
	m *killableNetwork
}

func (c *killableConn) Write(p []byte) (n int, err error) {
	for _, part := range [][]byte{p[:len(p)/2], p[len(p)/2:]} {
		if err := c.m.count(); err != nil {
			return n, err
		}
		written, err := c.Conn.Write(part)
		if n += written; err != nil {
			return n, err
		}
	}
	return n, c.m.count()
}

func (c *killableConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err := c.m.count(); err != nil {
		return 0, err
	}
	return n, err
}

// runOnce is a program that has stored a session and a command's ID. It starts the command
// unless an earlier run of the program has, and returns the exit code. The program is
// killed at the operation with the number point.
func runOnce(ctx context.Context, srv *sandboxtest.Server, stored []byte, id string, point int) (int, error) {
	ctx, kill := context.WithCancel(ctx)
	defer kill()
	m := &killableNetwork{kill: kill, point: point}
	transport := &http.Transport{DialContext: m.dial}
	defer transport.CloseIdleConnections()
	client, err := sandbox.NewClient(&sandbox.ClientOptions{
		BaseURL: srv.URL, Credentials: testkit.Credentials(srv), HTTPClient: &http.Client{Transport: transport},
	})
	if err != nil {
		return 0, err
	}
	session := &sandbox.Session{}
	if err := json.Unmarshal(stored, session); err != nil {
		return 0, err
	}
	client.Bind(session)
	for {
		cmd, err := session.GetCommand(ctx, id)
		if errors.Is(err, sandbox.ErrNotFound) {
			cmd, err = session.StartCommand(ctx, "sh", []string{"-c", `echo "$0" >> started; exit 3`, id}, &sandbox.StartOptions{ID: id})
		}
		if errors.Is(err, sandbox.ErrConflict) {
			continue // the start of the earlier run has arrived in the meantime
		}
		if err != nil {
			return 0, err
		}
		done, err := cmd.Wait(ctx)
		if err != nil {
			return 0, err
		}
		return done.ExitCode, nil
	}
}

// TestKilledAtEveryPoint kills a program that stores a command's ID at each operation of a
// start, and restarts it. The command runs exactly once.
func TestKilledAtEveryPoint(t *testing.T) {
	t.Parallel()
	srv, sb := testkit.LightStart(t, nil)
	stored, err := json.Marshal(sb.CurrentSession())
	require.NoError(t, err)
	point := 0
	for killed := true; killed; point++ {
		id := fmt.Sprintf("point-%d", point)
		code, err := runOnce(t.Context(), srv, stored, id, point)
		if killed = err != nil; killed {
			require.NoError(t, t.Context().Err())
			code, err = runOnce(t.Context(), srv, stored, id, -1)
		}
		require.NoError(t, err, "point %d", point)
		assert.Equal(t, 3, code, "point %d", point)
	}
	started := testkit.Output(t, sb, "cat", "started")
	for i := range point {
		assert.Equal(t, 1, strings.Count(started, fmt.Sprintf("point-%d\n", i)), "starts of the command of point %d", i)
	}
	assert.Greater(t, point, 12, "a start has at least this many operations")
	t.Logf("killed at %d points of a start", point-1)
}
