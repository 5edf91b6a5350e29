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

// Transport makes no more HTTP/2 connections than it needs. An [http.Transport]
// dials for each request that finds no connection with capacity: for a thousand
// concurrent requests it makes a thousand connections, and closes all but a
// few. This one dials only a few at a time, so that a request may find capacity
// before its turn.
type Transport struct {
	*http.Transport
	http2 atomic.Bool   // a host has responded over HTTP/2
	turns chan struct{} // holds an element for each dial in progress
}

// maxDials is how many shareable connections are dialed at the same time.
const maxDials = 4

// need describes the request that a dial is for.
type need struct {
	asked atomic.Int64 // how often the request asked for a connection
	met   atomic.Int64 // how many of these were served
}

type needKey struct{}

var errNotNeeded = errors.New("connection is no longer needed")

// RoundTrip implements [http.RoundTripper].
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.URL.Scheme != "https" {
		return t.Transport.RoundTrip(req)
	}
	n := new(need)
	settled := func() { n.met.Store(n.asked.Load()) }
	defer settled()
	ctx := context.WithValue(req.Context(), needKey{}, n)
	// A request asks again if a connection rejects it.
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

// turnConn ends its turn after the handshake, which takes two writes.
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
