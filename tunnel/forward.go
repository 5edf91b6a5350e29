package tunnel

import (
	"cmp"
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
	// OnError, if not nil, is called if a connection that l accepted could not reach the
	// sandbox, and for a temporary error of l, such as too many open files. It may be
	// called concurrently.
	OnError func(error)
	// NoKeepAlive disables the extension of the sandbox's session while connections are
	// open.
	NoKeepAlive bool
}

// Forward forwards each connection that l accepts to a port of the sandbox, through a
// [Dialer]. It returns nil when ctx ends, or the error of l if it is not temporary. It
// closes l and all connections before it returns. A nil opts means the defaults.
//
// Each direction of a connection is closed separately. If the server has sent EOF and the
// local end can't be half-closed, the connection is closed. At most sixteen connections are
// being established at a time, each for at most two minutes.
//
// Anybody who can connect to l reaches the port.
func Forward(ctx context.Context, l net.Listener, sb *sandbox.Sandbox, port int, opts *ForwardOptions) error {
	if err := check(ctx, sb, port); err != nil {
		return err
	}
	if l == nil {
		return entry.Invalid("tunnel", "l", "the listener is nil")
	}
	o := *cmp.Or(opts, new(ForwardOptions))
	d := NewDialer(sb)
	if o.NoKeepAlive {
		d.keep = nil
	}
	defer d.Close()
	return forward(ctx, l, func(ctx context.Context) (*Conn, error) { return d.Dial(ctx, port) }, o)
}

const (
	// maxDials limits the connections that are being established at a time.
	maxDials = 16
	// The pause before the next Accept after a temporary error, such as too many open
	// files, doubles from minPause to maxPause.
	minPause, maxPause = 5 * time.Millisecond, time.Second
	// dialTimeout includes the time to resume a sandbox.
	dialTimeout = 2 * time.Minute
)

func forward(ctx context.Context, l net.Listener, dial func(context.Context) (*Conn, error), o ForwardOptions) error {
	outer := ctx
	ctx, cancel := context.WithCancel(ctx)
	var joined sync.WaitGroup
	defer joined.Wait()
	defer cancel()
	dialing := make(chan struct{}, maxDials)
	connect := func() (*Conn, error) {
		select {
		case dialing <- struct{}{}:
			defer func() { <-dialing }()
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		limited, cancel := context.WithTimeout(ctx, dialTimeout)
		defer cancel()
		return dial(limited)
	}
	stop := context.AfterFunc(ctx, func() { _ = l.Close() }) // Accept then fails
	defer func() {
		if stop() {
			_ = l.Close() // Accept has already failed
		}
	}()
	var pause time.Duration
	for {
		local, err := l.Accept()
		if err != nil {
			if outer.Err() != nil {
				return nil
			}
			if temporary, ok := errors.AsType[interface {
				error
				Temporary() bool
			}](err); !ok || !temporary.Temporary() {
				return err
			}
			if o.OnError != nil {
				o.OnError(err)
			}
			pause = min(max(2*pause, minPause), maxPause)
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
				_ = local.Close() // nothing was sent
				if o.OnError != nil && ctx.Err() == nil {
					o.OnError(err)
				}
				return
			}
			join(ctx, local, remote)
		})
	}
}

// join copies in both directions until both have ended or one has failed. Then it closes
// both connections.
func join(ctx context.Context, local net.Conn, remote *Conn) {
	stop := context.AfterFunc(ctx, func() {
		_ = local.Close() // ends the copying
		remote.abort()
	})
	defer stop()
	var sending sync.WaitGroup
	sending.Go(func() {
		if _, err := io.CopyBuffer(ignoreEPIPE{remote}, readerFunc(local.Read), make([]byte, maxData)); err != nil {
			remote.abort()
			return
		}
		_ = remote.CloseWrite() // fails if the connection has ended
	})
	_, err := io.Copy(local, readerFunc(remote.Read))
	half, ok := local.(interface{ CloseWrite() error })
	if err != nil || !ok || half.CloseWrite() != nil {
		_ = local.Close() // ends the other direction
	}
	sending.Wait()
	_ = local.Close() // both directions have ended
	_ = remote.Close()
}

// ignoreEPIPE discards data that the server no longer reads. Its response may still
// arrive.
type ignoreEPIPE struct{ io.Writer }

func (w ignoreEPIPE) Write(p []byte) (int, error) {
	n, err := w.Writer.Write(p)
	if errors.Is(err, syscall.EPIPE) {
		return len(p), nil
	}
	return n, err
}

type readerFunc func(p []byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }
