package api

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"time"
)

// once is the lowest transport. It keeps net/http from sending a request again
// that must not take effect twice: over HTTP/2, net/http does so not only where
// the server says that it has not processed the request, but also after a reset
// with PROTOCOL_ERROR (golang.org/issue/47635), which may come from a server
// that has.
type once struct {
	next http.RoundTripper
	// http1 is set while responses come over HTTP/1, where net/http sends such a
	// request again only if no byte of it was written. It does not say so if it
	// can't, and the outcome would be unknown.
	http1 *atomic.Bool
}

// maxUnprocessed is how often a request that the server does not process is
// sent, as often as net/http does.
const maxUnprocessed = 8

var errSentAgain = errors.New("the transport was about to send the request again")

func (t once) send(req *http.Request, a *attempts) (*http.Response, error) {
	for n := 1; ; n++ {
		sent := req
		if a.req.Op.Class != Safe {
			sent = t.guarded(req, a)
		}
		resp, err := t.next.RoundTrip(sent)
		if err == nil {
			t.http1.Store(resp.ProtoMajor == 1)
			return resp, nil
		}
		if a.req.Op.Class == Safe || n == maxUnprocessed || !unprocessed(err) {
			return nil, err
		}
		a.wrote.Store(false)
		// Most servers that are shutting down take it on the next connection.
		if n > 1 && !Sleep(req.Context(), time.Second<<(n-2)) {
			return nil, ContextError(req.Context())
		}
		if req.GetBody != nil {
			body, err := req.GetBody()
			if err != nil {
				return nil, err
			}
			next := *req
			next.Body, req = body, &next
		}
	}
}

// guarded returns a copy of the request that net/http can't send again, unless
// nothing of it was written.
func (t once) guarded(req *http.Request, a *attempts) *http.Request {
	r := *req
	reopen := r.GetBody
	r.GetBody = nil
	if reopen != nil && t.http1.Load() {
		r.GetBody = func() (io.ReadCloser, error) {
			if a.http2.Load() {
				return nil, errSentAgain
			}
			return reopen()
		}
	}
	if r.Body == nil || r.Body == http.NoBody {
		// net/http sends a request without a body whenever it likes.
		r.Body = io.NopCloser(strings.NewReader(""))
	}
	return &r
}
