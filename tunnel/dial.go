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

// helpers are programs for the interpreters in the order in which they are
// looked for; an empty one is left out.
type helpers struct{ python, node string }

var allHelpers = helpers{pythonHelper, nodeHelper}

// Dial connects to a TCP port of the sandbox's loopback interface, resuming the
// sandbox if it has stopped. If nothing listens there, the error matches
// [ErrRefused]. It makes one request and a WebSocket connection, and starts a
// program in the sandbox: a [Dialer] does that once for many connections. While it is
// open, it keeps the sandbox running, as [sandbox.Sandbox.KeepAlive] does.
//
// As with [net.Dialer.DialContext], the end of ctx ends the dialing only; the
// caller must close the connection. It fits fields such as
// [net/http.Transport].DialContext and those of database drivers, in a function
// that leaves the address out.
func Dial(ctx context.Context, sb *sandbox.Sandbox, port int) (*Conn, error) {
	if err := check(ctx, sb, port); err != nil {
		return nil, err
	}
	return dial(ctx, sb, port, allHelpers)
}

func dial(ctx context.Context, sb *sandbox.Sandbox, port int, h helpers) (*Conn, error) {
	c, err := newDialer(sb, h).single(ctx, port)
	if err != nil {
		return nil, fmt.Errorf("tunnel: port %d of %q: %w", port, sb.Name(), err)
	}
	return c, nil
}

// check refuses what no connection can be made with.
func check(ctx context.Context, sb *sandbox.Sandbox, port int) error {
	return cmp.Or(entry.Check(ctx, sb != nil, "tunnel", "the Sandbox"), checkPort(port))
}

func checkPort(port int) error { return entry.Range("tunnel", "port", port, 1, 65535) }

// A Dialer makes connections to programs in a sandbox over one terminal, which the
// first one opens: the others cost no request, and about a millisecond beside the network. While a connection is open, it keeps the sandbox running, as
// [sandbox.Sandbox.KeepAlive] does. It is safe for concurrent use. The caller must close it.
type Dialer struct {
	sb      *sandbox.Sandbox
	name    string
	helpers helpers
	keep    func(ctx context.Context) // the sandbox running, until ctx ends

	opening chan struct{} // full while a terminal is opened

	mu     sync.Mutex
	l      *link // nil, or the last one
	closed bool
}

// NewDialer returns a Dialer, without a request. Dial of one for a nil Sandbox fails.
func NewDialer(sb *sandbox.Sandbox) *Dialer {
	if sb == nil {
		return &Dialer{}
	}
	return newDialer(sb, allHelpers)
}

func newDialer(sb *sandbox.Sandbox, h helpers) *Dialer {
	keep := func(ctx context.Context) { _ = sb.KeepAlive(ctx, nil) } // an event tells where the plan lets no more
	return &Dialer{sb: sb, name: sb.Name(), helpers: h, keep: keep, opening: make(chan struct{}, 1)}
}

// Dial connects to a port, as the function [Dial] does. If the terminal was lost, as
// when the sandbox has stopped, it opens another one.
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
			continue // an earlier one was lost before the connection was made
		}
		select {
		case d.opening <- struct{}{}:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		err = d.first(ctx)
		<-d.opening
		if err != nil {
			return nil, err
		}
		opened = true
	}
}

// shared returns the link for all connections; nil if there is none.
func (d *Dialer) shared() (*link, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, net.ErrClosed
	}
	if d.l != nil && !d.l.alive() {
		d.l.close()
		d.l = nil
	}
	return d.l, nil
}

// first opens the link for all connections, unless another call has.
func (d *Dialer) first(ctx context.Context) error {
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
	d.l = l
	return nil
}

// single makes a connection with a terminal of its own.
func (d *Dialer) single(ctx context.Context, port int) (*Conn, error) {
	l, err := d.open(ctx)
	if err != nil {
		return nil, err
	}
	c, err := l.open(ctx, addr{d.name, port})
	if err != nil {
		l.close()
		return nil, err
	}
	c.sole = true
	return c, nil
}

// open opens a terminal.
func (d *Dialer) open(ctx context.Context) (*link, error) {
	// The terminal ends with its context, the connection does not.
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

// Close closes the terminal, and with it all connections. It may be called more
// than once and returns nil, unless the Dialer is nil or zero.
func (d *Dialer) Close() error {
	if err := entry.Made(d != nil && d.sb != nil, "tunnel", "the Dialer"); err != nil {
		return err
	}
	d.mu.Lock()
	l := d.l
	d.l, d.closed = nil, true
	d.mu.Unlock()
	if l != nil {
		l.quit()
	}
	return nil
}
