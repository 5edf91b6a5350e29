// Package relay forwards HTTP requests and responses unchanged. Packages http and
// httputil would change some.
package relay

import (
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
)

// Pass copies the URI and the trailers of the original request to the forwarded one.
// Package httputil drops parameters that package url can't parse, package url escapes
// some bytes of a path in another way, and trailers come after the body.
func Pass(in, out *http.Request) {
	out.URL.RawQuery = in.URL.RawQuery
	// A URI that begins with two slashes would be taken for a host.
	if raw := in.URL.RawPath; raw != in.URL.EscapedPath() && !strings.HasPrefix(raw, "//") {
		if path, err := url.PathUnescape(raw); err == nil && path == in.URL.Path {
			out.URL.Opaque = raw
		}
	}
	out.Trailer = in.Trailer
}

// Serve forwards a request through proxy, and returns the server's response unchanged:
// without a content type if it has none, and also while the request is still being sent.
// Package http would guess a content type. When a response to an HTTP/1 request starts,
// package http would drop the rest of the request, or at times part of it, unless the
// connection is closed after the response. (EnableFullDuplex would change that, but then
// the connection is closed at the next request: go.dev/issue/68560.)
func Serve(proxy *httputil.ReverseProxy, w http.ResponseWriter, r *http.Request) {
	reply := &reply{ResponseWriter: w}
	if r.ProtoMajor == 1 && r.ContentLength != 0 {
		reply.request = &requestBody{ReadCloser: r.Body, length: r.ContentLength}
		r = r.WithContext(r.Context())
		r.Body = reply.request
	}
	proxy.ServeHTTP(reply, r)
}

// reply writes the response of Serve.
type reply struct {
	http.ResponseWriter
	request *requestBody // nil for a request without a body, or not over HTTP/1
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

// requestBody records when it was read to its end.
type requestBody struct {
	io.ReadCloser
	length, read int64       // length is -1 if it is not known
	whole        atomic.Bool // it was read to its end
}

func (b *requestBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.read += int64(n); b.read == b.length || err == io.EOF {
		b.whole.Store(true)
	}
	return n, err
}

// Disarm removes the headers of a response that tell a web server in front of the service
// to serve one of its own files.
func Disarm(h http.Header) {
	for name := range h {
		for _, prefix := range []string{"X-Accel-", "X-Sendfile", "X-Lighttpd-", "X-Litespeed-Location", "X-Reproxy-"} {
			if strings.HasPrefix(name, prefix) {
				delete(h, name)
			}
		}
	}
}
