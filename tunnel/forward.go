package tunnel

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/internal/entry"
)

// ForwardOptions are the options of [Forward]. The zero value is ready to use.
type ForwardOptions struct {
	// OnError is called with the reason why a connection that l accepted did not reach the sandbox,
	// and with a temporary error of l, such as too many open files.
	// It may be called by several goroutines at once. Nil means no report.
	OnError func(error)
	// NoKeepAlive leaves the end of the sandbox's session where it is while connections
	// are open.
	NoKeepAlive bool
}

// Forward joins each connection that l accepts with one to a port of the sandbox,
// as a [Dialer] makes it, until ctx ends, when it returns nil, or l fails for good. It closes l
// and all connections before it returns. The end of the data passes in each
// direction by itself; where the sandbox can't learn that, a connection ends when
// the local end has said all and the server has been silent for five seconds. No
// more than sixteen connections are being made at once, each for two minutes at
// most. A nil opts means the defaults.
//
// Whoever can connect to l reaches the port.
func Forward(ctx context.Context, l net.Listener, sb *sandbox.Sandbox, port int, opts *ForwardOptions) error {
	if err := check(ctx, sb, port); err != nil {
		return err
	}
	if l == nil {
		return entry.Invalid("tunnel", "l", "the listener is nil")
	}
	var o ForwardOptions
	if opts != nil {
		o = *opts
	}
	d := NewDialer(sb)
	if o.NoKeepAlive {
		d.keep = nil
	}
	defer d.Close()
	return forward(ctx, l, func(ctx context.Context) (*Conn, error) { return d.Dial(ctx, port) }, o)
}

const (
	// maxDials is how many connections are being made at once: each may start an
	// interpreter in the sandbox.
	maxDials = 16
	// After a temporary error of Accept, as of too many open files, it is called
	// again after these.
	firstPause, longestPause = 5 * time.Millisecond, time.Second
	// dialTimeout leaves time for a sandbox to wake.
	dialTimeout = 2 * time.Minute
)

func forward(ctx context.Context, l net.Listener, dial func(context.Context) (*Conn, error), o ForwardOptions) error {
	outer := ctx
	ctx, cancel := context.WithCancel(ctx)
	var joined sync.WaitGroup
	defer joined.Wait()
	defer cancel()
	turns := make(chan struct{}, maxDials)
	connect := func() (*Conn, error) {
		select {
		case turns <- struct{}{}:
			defer func() { <-turns }()
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		limited, cancel := context.WithTimeout(ctx, dialTimeout)
		defer cancel()
		return dial(limited)
	}
	stop := context.AfterFunc(ctx, func() { _ = l.Close() }) // Accept says it
	defer func() {
		if stop() {
			_ = l.Close() // it may have failed before
		}
	}()
	var pause time.Duration
	for {
		local, err := l.Accept()
		if err != nil {
			if outer.Err() != nil {
				return nil
			}
			if passing, ok := errors.AsType[interface {
				error
				Temporary() bool
			}](err); !ok || !passing.Temporary() {
				return err
			}
			if o.OnError != nil {
				o.OnError(err)
			}
			pause = min(max(2*pause, firstPause), longestPause)
			select {
			case <-time.After(pause):
			case <-ctx.Done():
			}
			continue
		}
		pause = 0
		joined.Go(func() {
			remote, err := connect()
			if err != nil {
				_ = local.Close() // nothing was said
				if o.OnError != nil && ctx.Err() == nil {
					o.OnError(err)
				}
				return
			}
			join(ctx, local, remote)
		})
	}
}

// join copies in both directions until both have ended, or one has failed, and
// closes both connections.
func join(ctx context.Context, local net.Conn, remote *Conn) {
	stop := context.AfterFunc(ctx, func() {
		_ = local.Close() // what is copied fails now
		remote.abort()
	})
	defer stop()
	var sending sync.WaitGroup
	sending.Go(func() {
		if _, err := io.CopyBuffer(deafWriter{remote}, readerFunc(local.Read), make([]byte, maxData)); err != nil {
			remote.abort()
			return
		}
		_ = remote.CloseWrite() // it fails if the connection has ended
	})
	_, err := io.Copy(local, readerFunc(remote.Read))
	half, ok := local.(interface{ CloseWrite() error })
	if err != nil || !ok || half.CloseWrite() != nil {
		_ = local.Close() // ends what is being sent
	}
	sending.Wait()
	_ = local.Close() // it has said all
	_ = remote.Close()
}

// deafWriter drops what the server takes no more, whose answer may still come.
type deafWriter struct{ io.Writer }

func (w deafWriter) Write(p []byte) (int, error) {
	n, err := w.Writer.Write(p)
	if errors.Is(err, syscall.EPIPE) {
		return len(p), nil
	}
	return n, err
}

type readerFunc func(p []byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }
