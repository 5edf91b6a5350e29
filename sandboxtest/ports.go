package sandboxtest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"sync/atomic"
	"time"

	"github.com/go-vercel/sandbox/internal/edge"
	"github.com/go-vercel/sandbox/internal/wire"
	"github.com/go-vercel/sandbox/sandboxtest/internal/box"
)

// route makes a port of a sandbox reachable: a listener of its own whose
// requests go to whatever listens in the sandbox. It stays the same from one
// session to the next.
type route struct {
	port      int
	subdomain string
	listener  net.Listener
	server    *http.Server
	// forget takes back what closes the route together with the server.
	forget func() bool
}

func (r *route) close() {
	r.forget()
	r.shut()
}

// shut cuts the route's connections, and closes a listener that was not served
// yet.
func (r *route) shut() {
	_ = r.server.Close()
	_ = r.listener.Close()
}

func (r *route) wire() wire.Route {
	return wire.Route{URL: "http://" + r.listener.Addr().String(), Subdomain: r.subdomain, Port: r.port}
}

// traffic counts what a session has received and sent through its routes.
type traffic struct{ in, out atomic.Int64 }

func (t *traffic) load() (in, out int64) { return t.in.Load(), t.out.Load() }

// setPortsInOp makes routes for ports and closes those of others.
func (sb *namedSandbox) setPortsInOp(ports []int) error {
	st := sb.s.store
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

func (sb *namedSandbox) closeRoutesInOp() {
	// Without ports there is nothing to open that could fail.
	_ = sb.setPortsInOp(nil)
}

func (sb *namedSandbox) openRoute(port int) (*route, error) {
	s := sb.s
	host, _, err := net.SplitHostPort(s.address())
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
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
		// A session that has ended must not be kept by an idle connection.
		DisableKeepAlives:  true,
		DisableCompression: true, // what the visitor asks for counts
		// The server may refuse a body.
		ExpectContinueTimeout: time.Second,
	}
	target := &url.URL{Scheme: "http", Host: "127.0.0.1"}
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			edge.Pass(r.In, r.Out)
			r.Out.Host = r.In.Host
			r.SetXForwarded()
			// The platform documents these, too.
			for _, name := range []string{"X-Real-Ip", "X-Vercel-Forwarded-For"} {
				r.Out.Header.Set(name, r.Out.Header.Get("X-Forwarded-For"))
			}
		},
		Transport:     transport,
		FlushInterval: -1,
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			e := fail(http.StatusBadGateway, "SANDBOX_NOT_LISTENING", "Nothing listens on port %d of the sandbox.", port)
			_, unreached := errors.AsType[dialError](err)
			switch {
			case errors.Is(err, box.ErrLoopbackOnly):
				e.message = fmt.Sprintf("What listens on port %d of the sandbox does so on 127.0.0.1, where only the sandbox itself reaches it: let it listen on 0.0.0.0.", port)
			case !unreached:
				// A server that was reached may have acted, so that nobody may take
				// its end for "not delivered".
				e = fail(http.StatusBadGateway, "ROUTER_EXTERNAL_TARGET_ERROR", "The server on port %d of the sandbox closed the connection.", port)
			}
			writeEdgeError(w, e)
		},
		ErrorLog: slogDebug(s.opts.Logger),
	}
	r := &route{port: port, subdomain: newSubdomain(), listener: l}
	r.server = newHTTPServer(func(w http.ResponseWriter, req *http.Request) {
		if e := sb.unreachable(); e != nil {
			writeEdgeError(w, e)
			return
		}
		w.Header()["Content-Type"] = nil // not to be guessed
		proxy.ServeHTTP(w, req)
	}, s.opts.Logger)
	r.forget = context.AfterFunc(s.ctx, r.shut)
	s.spawn(func() { _ = r.server.Serve(l) }) // ends when the server is closed
	return r, nil
}

// unreachable is the edge's error in place of a sandbox that isn't running.
func (sb *namedSandbox) unreachable() *apiError {
	st := sb.s.store
	st.mu.Lock()
	defer st.mu.Unlock()
	switch {
	case sb.deleted || sb.current == nil:
		return fail(http.StatusNotFound, "SANDBOX_NOT_FOUND", "The sandbox was not found.")
	case sb.current.liveLocked():
		return nil
	case sb.current.status == statusStopping:
		return fail(http.StatusUnprocessableEntity, "SANDBOX_STOPPING", "The sandbox is stopping.")
	case sb.current.status == statusSnapshotting:
		return fail(http.StatusUnprocessableEntity, "SANDBOX_SNAPSHOTTING", "The sandbox is creating a snapshot.")
	}
	return fail(http.StatusGone, "SANDBOX_STOPPED", "The sandbox has stopped.")
}

// writeEdgeError responds with an error of the edge, which also names it in a
// header, as the platform does with its own errors.
func writeEdgeError(w http.ResponseWriter, e *apiError) {
	w.Header().Set("X-Vercel-Error", e.code)
	writeError(w, e)
}

// dialError is a failure to connect.
type dialError struct{ error }

func (e dialError) Unwrap() error { return e.error }

// dial connects to a port of the sandbox's running session.
func (sb *namedSandbox) dial(ctx context.Context, port int) (net.Conn, error) {
	st := sb.s.store
	st.mu.Lock()
	sess := sb.current
	var conn net.Conn
	err := errors.New("no session")
	running := sess != nil && sess.status == statusRunning
	st.mu.Unlock()
	if !running {
		return nil, err
	}
	machine, err := sess.use(ctx)
	if err != nil {
		return nil, err
	}
	if conn, err = machine.Dial(ctx, port); err != nil {
		return nil, err
	}
	return &countedConn{Conn: conn, t: &sess.streams}, nil
}

// countedConn counts what goes through a connection into a sandbox.
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
