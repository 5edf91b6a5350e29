package tunnel

import (
	"cmp"
	"context"
	_ "embed" // the helpers
	"errors"
	"fmt"
	"net"
	"sync"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/internal/entry"
	"github.com/go-vercel/sandbox/internal/rawshell"
)

// ErrRefused reports that nothing listens on the port.
var ErrRefused = errors.New("connection refused in the sandbox")

//go:embed helper.sh
var startHelper string

//go:embed helper.py
var pythonHelper string

//go:embed helper.js
var nodeHelper string

// helpers are the programs for the interpreters, in the order in which they are tried. An
// empty one is skipped.
type helpers struct{ python, node string }

var allHelpers = helpers{pythonHelper, nodeHelper}

// Dial connects to a TCP port of the sandbox's loopback interface. It resumes the sandbox
// if it has stopped. If nothing listens on the port, the error matches [ErrRefused]. While
// the connection is open, it keeps the sandbox running, as [sandbox.Sandbox.KeepAlive]
// does. The caller must close it.
//
// Dial makes a request and a WebSocket connection, and starts a program in the sandbox. A
// [Dialer] does that once for many connections.
//
// As with [net.Dialer.DialContext], ctx limits only the dialing. To use Dial in a field such
// as [net/http.Transport].DialContext or in a database driver, wrap it in a function that
// ignores the address.
func Dial(ctx context.Context, sb *sandbox.Sandbox, port int) (*Conn, error) {
	if err := check(ctx, sb, port); err != nil {
		return nil, err
	}
	return dial(ctx, sb, port, allHelpers)
}

func dial(ctx context.Context, sb *sandbox.Sandbox, port int, h helpers) (*Conn, error) {
	c, err := newDialer(sb, h).dialOwn(ctx, port)
	if err != nil {
		return nil, fmt.Errorf("tunnel: port %d of %q: %w", port, sb.Name(), err)
	}
	return c, nil
}

// check validates the arguments of Dial and Forward.
func check(ctx context.Context, sb *sandbox.Sandbox, port int) error {
	return cmp.Or(entry.Check(ctx, sb != nil, "tunnel", "the Sandbox"), checkPort(port))
}

func checkPort(port int) error { return entry.Range("tunnel", "port", port, 1, 65535) }

// A Dialer makes connections to programs in a sandbox over one terminal. The first
// connection opens it. The others need no request, and take about a millisecond in addition
// to the network's round trip. An open connection keeps the sandbox running, as
// [sandbox.Sandbox.KeepAlive] does. A Dialer is safe for concurrent use. The caller must
// close it.
type Dialer struct {
	sb      *sandbox.Sandbox
	name    string
	helpers helpers
	keep    func(ctx context.Context) // keeps the sandbox running until ctx ends

	opening chan struct{} // full while a terminal is being opened

	mu     sync.Mutex
	link   *link // the last one, or nil
	closed bool
}

// NewDialer returns a Dialer. It makes no request. If sb is nil, Dial fails.
func NewDialer(sb *sandbox.Sandbox) *Dialer {
	if sb == nil {
		return &Dialer{}
	}
	return newDialer(sb, allHelpers)
}

func newDialer(sb *sandbox.Sandbox, h helpers) *Dialer {
	keep := func(ctx context.Context) { _ = sb.KeepAlive(ctx, nil) } // an event reports if the plan allows no more time
	return &Dialer{sb: sb, name: sb.Name(), helpers: h, keep: keep, opening: make(chan struct{}, 1)}
}

// Dial connects to a port, as the function [Dial] does. If the terminal was lost, for
// example because the sandbox has stopped, Dial opens another one.
func (d *Dialer) Dial(ctx context.Context, port int) (*Conn, error) {
	if err := cmp.Or(entry.Check(ctx, d != nil && d.sb != nil, "tunnel", "the Dialer"), checkPort(port)); err != nil {
		return nil, err
	}
	c, err := d.dial(ctx, port)
	if err != nil {
		return nil, fmt.Errorf("tunnel: port %d of %q: %w", port, d.name, err)
	}
	return c, nil
}

func (d *Dialer) dial(ctx context.Context, port int) (*Conn, error) {
	remote := addr{d.name, port}
	for opened := false; ; {
		l, err := d.shared()
		if err != nil {
			return nil, err
		}
		if l != nil {
			c, err := l.open(ctx, remote)
			if err == nil || opened || ctx.Err() != nil || l.alive() {
				return c, err
			}
			continue // the existing link was lost
		}
		select {
		case d.opening <- struct{}{}:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		err = d.openShared(ctx)
		<-d.opening
		if err != nil {
			return nil, err
		}
		opened = true
	}
}

// shared returns the link for all connections, or nil if there is none.
func (d *Dialer) shared() (*link, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, net.ErrClosed
	}
	if d.link != nil && !d.link.alive() {
		d.link.close()
		d.link = nil
	}
	return d.link, nil
}

// openShared opens the link for all connections, unless another call has opened it.
func (d *Dialer) openShared(ctx context.Context) error {
	if l, err := d.shared(); l != nil || err != nil {
		return err
	}
	l, err := d.open(ctx)
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		l.close()
		return net.ErrClosed
	}
	d.link = l
	return nil
}

// dialOwn makes a connection over a terminal of its own.
func (d *Dialer) dialOwn(ctx context.Context, port int) (*Conn, error) {
	l, err := d.open(ctx)
	if err != nil {
		return nil, err
	}
	c, err := l.open(ctx, addr{d.name, port})
	if err != nil {
		l.close()
		return nil, err
	}
	c.ownsLink = true
	return c, nil
}

// open opens a terminal.
func (d *Dialer) open(ctx context.Context) (*link, error) {
	// The terminal ends with its context, but it must outlive ctx.
	life, hangUp := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { hangUp(context.Cause(ctx)) })
	stream, err := rawshell.OpenOwn(life, d.sb, "sh", rawshell.Raw+startHelper, d.helpers.python, d.helpers.node)
	if !stop() && err == nil {
		_ = stream.Close() // always nil
		err = context.Cause(ctx)
	}
	if err != nil {
		hangUp(nil)
		return nil, err
	}
	return newLink(stream, hangUp, d.keep), nil
}

// Close closes the terminal and all its connections. It may be called more than once and
// returns nil, unless the Dialer is nil or zero.
func (d *Dialer) Close() error {
	if err := entry.Made(d != nil && d.sb != nil, "tunnel", "the Dialer"); err != nil {
		return err
	}
	d.mu.Lock()
	l := d.link
	d.link, d.closed = nil, true
	d.mu.Unlock()
	if l != nil {
		l.quit()
	}
	return nil
}
