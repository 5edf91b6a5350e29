// Package relay passes HTTP requests and responses on as they are, where packages
// http and httputil would change them.
package relay

import (
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
)

// Pass lets a request that is passed on have the URI and the trailers that it came
// with: package httputil drops parameters that package url can't parse, package url
// writes some bytes of a path in another way, and trailers come after the body.
func Pass(in, out *http.Request) {
	out.URL.RawQuery = in.URL.RawQuery
	// One that begins with two slashes would be taken for a host.
	if raw := in.URL.RawPath; raw != in.URL.EscapedPath() && !strings.HasPrefix(raw, "//") {
		if path, err := url.PathUnescape(raw); err == nil && path == in.URL.Path {
			out.URL.Opaque = raw
		}
	}
	out.Trailer = in.Trailer
}

// Serve passes a request on by proxy, and back what the server says as it says it:
// without a type, if it has none, and while it is still sent the request. Package http
// would guess a type, and of a request by HTTP/1 drop what is left as a response begins,
// or at times a part of it, but for a connection that is closed after the response. (That
// can be changed by EnableFullDuplex, with which it closes the connection as the next
// request comes: go.dev/issue/68560.)
func Serve(proxy *httputil.ReverseProxy, w http.ResponseWriter, r *http.Request) {
	reply := &reply{ResponseWriter: w}
	if r.ProtoMajor == 1 && r.ContentLength != 0 {
		reply.request = &requestBody{ReadCloser: r.Body, length: r.ContentLength}
		r = r.WithContext(r.Context())
		r.Body = reply.request
	}
	proxy.ServeHTTP(reply, r)
}

// reply is the writer of a response of Serve.
type reply struct {
	http.ResponseWriter
	request *requestBody // nil if it does not matter
}

func (w *reply) WriteHeader(status int) {
	h := w.Header()
	if _, ok := h["Content-Type"]; !ok {
		h["Content-Type"] = nil
	}
	if status >= http.StatusOK && w.request != nil && !w.request.whole.Load() {
		h.Set("Connection", "close")
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *reply) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// requestBody notices when all was read.
type requestBody struct {
	io.ReadCloser
	length, read int64 // length is -1 if it is not known
	whole        atomic.Bool
}

func (b *requestBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.read += int64(n); b.read == b.length || err == io.EOF {
		b.whole.Store(true)
	}
	return n, err
}

// Disarm removes the headers of a response that web servers in front of a service
// take as instructions to serve one of their own files.
func Disarm(h http.Header) {
	for name := range h {
		for _, prefix := range []string{"X-Accel-", "X-Sendfile", "X-Lighttpd-", "X-Litespeed-Location", "X-Reproxy-"} {
			if strings.HasPrefix(name, prefix) {
				delete(h, name)
			}
		}
	}
}
