package api

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync"
	"sync/atomic"
)

// Transport makes no more connections over HTTP/2 than it needs. An
// [http.Transport] dials for each request that finds no connection with room for
// it: when a thousand come at once, it makes a thousand connections, and drops
// all but a few of them again. Here a few dials are under way at a time, and by
// the turn of another its request may have found room.
type Transport struct {
	*http.Transport
	http2 atomic.Bool   // a host answered over HTTP/2
	turns chan struct{} // holds an element for each dial that is under way
}

// maxDials is how many connections are made at a time where they can be shared.
const maxDials = 4

// need is what a dial is told of the request that it is for.
type need struct {
	asked atomic.Int64 // how often the request asked for a connection
	met   atomic.Int64 // for how many of these times that is settled
}

type needKey struct{}

var errNotNeeded = errors.New("connection is not needed any more")

// RoundTrip implements [http.RoundTripper].
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.URL.Scheme != "https" {
		return t.Transport.RoundTrip(req)
	}
	n := new(need)
	settled := func() { n.met.Store(n.asked.Load()) }
	defer settled()
	ctx := context.WithValue(req.Context(), needKey{}, n)
	// A request asks again if a connection refuses it.
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn: func(string) { settled(); n.asked.Add(1) },
		GotConn: func(httptrace.GotConnInfo) { settled() },
	})
	resp, err := t.Transport.RoundTrip(req.WithContext(ctx))
	if err == nil && resp.ProtoMajor == 2 {
		t.http2.Store(true)
	}
	return resp, err
}

// dialInTurn returns a function that dials when it is the request's turn.
func (t *Transport) dialInTurn(dial func(ctx context.Context, network, addr string) (net.Conn, error)) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		n, ok := ctx.Value(needKey{}).(*need)
		if !ok || !t.http2.Load() {
			return dial(ctx, network, addr)
		}
		number := n.asked.Load()
		select {
		case t.turns <- struct{}{}:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		end := sync.OnceFunc(func() { <-t.turns })
		if n.met.Load() >= number {
			end()
			return nil, errNotNeeded
		}
		conn, err := dial(ctx, network, addr)
		if err != nil {
			end()
			return nil, err
		}
		return &turnConn{Conn: conn, end: end}, nil
	}
}

// turnConn ends its turn when the handshake is over, which takes two writes.
type turnConn struct {
	net.Conn
	end    func()
	writes atomic.Int32
}

func (c *turnConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	if c.writes.Load() < 2 && c.writes.Add(1) == 2 {
		c.end()
	}
	return n, err
}

func (c *turnConn) Close() error {
	c.end()
	return c.Conn.Close()
}
