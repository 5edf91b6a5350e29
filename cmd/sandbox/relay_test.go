package main

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// relay is a proxy between the program and the emulator. It can cut every connection,
// including those of terminals.
type relay struct {
	net.Listener

	mu    sync.Mutex
	conns []net.Conn
}

// newRelay makes the workspace's program use a relay.
func newRelay(t *testing.T, d *workspace) *relay {
	t.Helper()
	target, err := url.Parse(d.server.URL)
	require.NoError(t, err)
	server := httptest.NewUnstartedServer(nil)
	r := &relay{Listener: server.Listener}
	here := server.Listener.Addr().String()
	server.Listener = r
	server.Config.Handler = &httputil.ReverseProxy{
		Rewrite:       func(p *httputil.ProxyRequest) { p.SetURL(&url.URL{Scheme: "http", Host: target.Host}) },
		FlushInterval: -1,
		// Replace the address of a terminal in the response.
		ModifyResponse: func(resp *http.Response) error {
			if !strings.HasSuffix(resp.Request.URL.Path, "/interactive") {
				return nil
			}
			body, err := io.ReadAll(resp.Body)
			if err != nil {
				return err
			}
			body = bytes.ReplaceAll(body, []byte(target.Host), []byte(here))
			resp.Body, resp.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
			resp.Header.Del("Content-Length")
			return nil
		},
	}
	server.Start()
	t.Cleanup(func() {
		r.cut()
		server.Close()
	})
	d.env = append(d.env, "VERCEL_SANDBOX_BASE_URL=http://"+here+target.Path)
	return r
}

// Accept also records the connection, for cut.
func (r *relay) Accept() (net.Conn, error) {
	c, err := r.Listener.Accept()
	if err == nil {
		r.mu.Lock()
		r.conns = append(r.conns, c)
		r.mu.Unlock()
	}
	return c, err
}

// cut ends all connections.
func (r *relay) cut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.conns {
		_ = c.Close() // it may be closed already
	}
	r.conns = nil
}
