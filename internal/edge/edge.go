// Package edge tells what the platform's edge says of a sandbox from what a server
// in the sandbox says.
package edge

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/go-vercel/sandbox/internal/redact"
	"github.com/go-vercel/sandbox/internal/wire"
)

// What the edge says in place of a server, as documented.
const (
	Stopped      = "SANDBOX_STOPPED"
	Stopping     = "SANDBOX_STOPPING"
	Snapshotting = "SANDBOX_SNAPSHOTTING"
	NotFound     = "SANDBOX_NOT_FOUND"
	NotListening = "SANDBOX_NOT_LISTENING"
)

// Error is a response of the platform's edge in place of the server's.
type Error struct {
	Status  int
	Code    string
	Message string // for people; empty if it says nothing else
	stopped error
}

func (e *Error) Error() string {
	if e.Message != "" {
		return fmt.Sprintf("status %d of the platform (%s): %s", e.Status, redact.Printable(e.Message), e.Code)
	}
	return fmt.Sprintf("status %d of the platform: %s", e.Status, e.Code)
}

// Is makes the error match the one for what has stopped, where that is what the
// edge reports, and never one for what does not exist: a server can say the same,
// and only the API's word is one for which a caller gives up a sandbox.
func (e *Error) Is(target error) bool {
	return target == e.stopped && slices.Contains([]string{Stopped, Stopping, Snapshotting}, e.Code)
}

// May reports whether a response can be the edge's, by its status.
func May(resp *http.Response) bool {
	return slices.Contains([]int{http.StatusNotFound, http.StatusGone, http.StatusUnprocessableEntity, http.StatusBadGateway}, resp.StatusCode)
}

// Said returns the edge's reason for a response that begins with text, and nil for
// a response of a server: a status alone says nothing, since servers use the same.
// The reason is in the header, in the error's code if the body is JSON, or on a
// line of its own. stopped is what it matches if the sandbox has stopped.
func Said(resp *http.Response, text string, stopped error) *Error {
	if !May(resp) {
		return nil
	}
	said := resp.Header.Values("X-Vercel-Error")
	message := ""
	var body wire.ErrorResponse
	if json.Unmarshal([]byte(text), &body) == nil {
		message = body.Error.Message
		if len(said) == 0 {
			said = []string{body.Error.Code}
		}
	} else if len(said) == 0 {
		for line := range strings.Lines(text) {
			said = append(said, strings.TrimSpace(line))
			message = cmp.Or(message, said[0])
		}
	}
	for _, code := range []string{Stopped, Stopping, Snapshotting, NotFound, NotListening} {
		if slices.Contains(said, code) {
			if message == code {
				message = ""
			}
			return &Error{resp.StatusCode, code, message[:min(len(message), maxMessage)], stopped}
		}
	}
	return nil
}

// maxMessage is more than the edge says.
const maxMessage = 300

// Pass lets a request that is passed on have the URI and the trailers that it came with: package
// httputil drops parameters that package url can't parse, package url writes some
// bytes of a path in another way, and trailers come after the body.
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
