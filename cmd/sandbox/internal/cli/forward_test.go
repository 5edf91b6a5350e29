package cli

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox"
)

// oneConnection is a listener that accepts one connection and then fails.
type oneConnection struct {
	net.Listener
	conns []net.Conn
	err   error
}

func (l *oneConnection) Accept() (net.Conn, error) {
	if len(l.conns) == 0 {
		return nil, l.err
	}
	c := l.conns[0]
	l.conns = l.conns[1:]
	return c, nil
}

// patientOpener opens nothing until it is given up.
type patientOpener struct{}

func (patientOpener) Shell(ctx context.Context, _ *sandbox.ShellOptions) (*sandbox.Shell, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// TestAcceptFails: that no more connections are accepted is reported at once, not
// when those that are open have ended.
func TestAcceptFails(t *testing.T) {
	t.Parallel()
	here, there := net.Pipe()
	defer there.Close()
	broken := errors.New("too many open files")
	ctx, cancel := context.WithCancel(t.Context())
	var tunnels sync.WaitGroup
	err := (&app{}).serveTunnel(ctx, &oneConnection{conns: []net.Conn{here}, err: broken}, patientOpener{}, "web", 80, &tunnels)
	require.ErrorIs(t, err, broken)
	cancel()
	tunnels.Wait()
	_, err = there.Read(make([]byte, 1))
	assert.Error(t, err, "what was open is closed with the rest")
}
