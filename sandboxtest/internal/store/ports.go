package store

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-vercel/sandbox/internal/relay"
	"github.com/go-vercel/sandbox/internal/wire"
	"github.com/go-vercel/sandbox/sandboxtest/internal/box/backend"
	"github.com/go-vercel/sandbox/sandboxtest/internal/reply"
)

// route makes a port of a sandbox reachable: its own listener forwards requests to
// whatever listens in the sandbox. It stays the same from one session to the next.
type route struct {
	port      int
	subdomain string
	listener  net.Listener
	server    *http.Server
	// cancelAutoClose cancels the closing of the route when the store closes.
	cancelAutoClose func() bool
}

func (r *route) close() {
	r.cancelAutoClose()
	r.closeServer()
}

// closeServer ends the route's connections and closes its listener. The server closes a
// listener only once it serves it.
func (r *route) closeServer() {
	_ = r.server.Close()
	_ = r.listener.Close()
}

func (r *route) describe() wire.Route {
	return wire.Route{URL: "http://" + r.listener.Addr().String(), Subdomain: r.subdomain, Port: r.port}
}

// traffic counts what a session has received and sent through its routes.
type traffic struct{ in, out atomic.Int64 }

func (t *traffic) load() (in, out int64) { return t.in.Load(), t.out.Load() }

// setPortsInOp creates routes for ports and closes all others.
func (sb *Sandbox) setPortsInOp(ports []int) error {
	st := sb.st
	st.mu.Lock()
	old := slices.Clone(sb.routes)
	st.mu.Unlock()
	routes := make([]*route, 0, len(ports))
	var fresh []*route
	for _, port := range ports {
		if i := slices.IndexFunc(old, func(r *route) bool { return r.port == port }); i >= 0 {
			routes = append(routes, old[i])
			continue
		}
		r, err := sb.openRoute(port)
		if err != nil {
			for _, r := range fresh {
				r.close()
			}
			return err
		}
		routes, fresh = append(routes, r), append(fresh, r)
	}
	st.mu.Lock()
	sb.routes = routes
	st.mu.Unlock()
	for _, r := range old {
		if !slices.Contains(routes, r) {
			r.close()
		}
	}
	return nil
}

func (sb *Sandbox) closeRoutesInOp() {
	// Without ports nothing is opened, so nothing can fail.
	_ = sb.setPortsInOp(nil)
}

func (sb *Sandbox) openRoute(port int) (*route, error) {
	st := sb.st
	l, err := net.Listen("tcp", net.JoinHostPort(st.routesHost, "0"))
	if err != nil {
		return nil, err
	}
	transport := &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			conn, err := sb.dial(ctx, port)
			if err != nil {
				return nil, dialError{err}
			}
			return conn, nil
		},
		// An idle connection must not keep an ended session alive.
		DisableKeepAlives:  true,
		DisableCompression: true, // only the visitor may ask for compression
		// A visitor may let the server in the sandbox refuse a body before it is sent.
		ExpectContinueTimeout: time.Second,
	}
	target := &url.URL{Scheme: "http", Host: "127.0.0.1"}
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			relay.Pass(r.In, r.Out)
			r.Out.Host = r.In.Host
			r.SetXForwarded()
			// The platform documents these headers, too.
			for _, name := range []string{"X-Real-Ip", "X-Vercel-Forwarded-For"} {
				r.Out.Header.Set(name, r.Out.Header.Get("X-Forwarded-For"))
			}
		},
		Transport:     transport,
		FlushInterval: -1,
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			e := reply.Fail(http.StatusBadGateway, "SANDBOX_NOT_LISTENING", "Nothing listens on port %d of the sandbox.", port)
			_, notReached := errors.AsType[dialError](err)
			switch {
			case errors.Is(err, backend.ErrLoopbackOnly):
				e.Message = fmt.Sprintf("The server on port %d of the sandbox listens on 127.0.0.1, where only the sandbox itself reaches it: let it listen on 0.0.0.0.", port)
			case !notReached:
				// A server that was reached may have acted, so the error must not mean
				// "not delivered".
				e = reply.Fail(http.StatusBadGateway, "ROUTER_EXTERNAL_TARGET_ERROR", "The server on port %d of the sandbox closed the connection.", port)
			}
			reply.WriteEdgeError(w, e)
		},
		ErrorLog: slogDebug(st.opts.Log),
	}
	r := &route{port: port, subdomain: newSubdomain(), listener: l}
	r.server = NewHTTPServer(func(w http.ResponseWriter, req *http.Request) {
		if e := sb.notRunningError(); e != nil {
			reply.WriteEdgeError(w, e)
			return
		}
		relay.Serve(proxy, w, req)
	}, st.opts.Log)
	r.cancelAutoClose = context.AfterFunc(st.ctx, r.closeServer)
	st.Spawn(func() { _ = r.server.Serve(l) }) // ends when the server is closed
	return r, nil
}

// notRunningError returns the error of the platform's edge for a sandbox that isn't
// running, or nil.
func (sb *Sandbox) notRunningError() *reply.Error {
	st := sb.st
	st.mu.Lock()
	defer st.mu.Unlock()
	switch {
	case sb.deleted || sb.current == nil:
		return reply.Fail(http.StatusNotFound, "SANDBOX_NOT_FOUND", "The sandbox was not found.")
	case sb.current.liveLocked():
		return nil
	case sb.current.rec.Status == StatusStopping:
		return reply.Fail(http.StatusUnprocessableEntity, "SANDBOX_STOPPING", "The sandbox is stopping.")
	case sb.current.rec.Status == statusSnapshotting:
		return reply.Fail(http.StatusUnprocessableEntity, "SANDBOX_SNAPSHOTTING", "The sandbox is creating a snapshot.")
	}
	return reply.Fail(http.StatusGone, "SANDBOX_STOPPED", "The sandbox has stopped.")
}

// dialError is a failure to connect.
type dialError struct{ error }

func (e dialError) Unwrap() error { return e.error }

// dial connects to a port of the sandbox's running session.
func (sb *Sandbox) dial(ctx context.Context, port int) (net.Conn, error) {
	st := sb.st
	st.mu.Lock()
	sess := sb.current
	var conn net.Conn
	err := errors.New("no session")
	running := sess != nil && sess.rec.Status == StatusRunning
	st.mu.Unlock()
	if !running {
		return nil, err
	}
	machine, err := sess.Use(ctx)
	if err != nil {
		return nil, err
	}
	if conn, err = machine.Dial(ctx, port); err != nil {
		return nil, err
	}
	return &countedConn{Conn: conn, t: &sess.traffic}, nil
}

// countedConn counts the bytes of a connection into a sandbox.
type countedConn struct {
	net.Conn
	t *traffic
}

func (c *countedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.t.out.Add(int64(n))
	return n, err
}

func (c *countedConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.t.in.Add(int64(n))
	return n, err
}

// Route returns the handler of the port that has this subdomain, or nil.
func (st *Store) Route(subdomain string) http.Handler {
	st.mu.Lock()
	defer st.mu.Unlock()
	for _, sb := range st.sandboxes {
		for _, r := range sb.routes {
			if strings.EqualFold(r.subdomain, subdomain) {
				return r.server.Handler
			}
		}
	}
	return nil
}

// NewHTTPServer returns a server that keeps idle connections for longer than clients do.
// Clients often open one connection more than they need, and keep it. If the server
// closed it first, a request that is sent on it at that moment would be lost, with an
// unknown outcome.
func NewHTTPServer(handler http.HandlerFunc, logger *slog.Logger) *http.Server {
	// The server would log broken connections, which are expected here.
	return &http.Server{Handler: handler, ReadHeaderTimeout: 2 * time.Minute, ErrorLog: slogDebug(logger)}
}

func slogDebug(l *slog.Logger) *log.Logger { return slog.NewLogLogger(l.Handler(), slog.LevelDebug) }
