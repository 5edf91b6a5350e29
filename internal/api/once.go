package api

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"time"
)

// onceTransport is the lowest transport. It keeps net/http from resending a request that must
// not take effect twice. Over HTTP/2, net/http resends not only if the server has not
// processed the request, but also after a reset with PROTOCOL_ERROR
// (golang.org/issue/47635), which may come from a server that has processed it.
type onceTransport struct {
	next http.RoundTripper
	// http1 is set while responses use HTTP/1. There, net/http resends such a request only if
	// no byte of it was written, which is safe. Without the resend, its error would not say
	// that nothing was written, and the outcome would be unknown.
	http1 *atomic.Bool
}

// maxUnprocessed limits the sends of a request that the server does not process. net/http
// has the same limit.
const maxUnprocessed = 8

var errResent = errors.New("the transport was about to resend the request")

func (t onceTransport) send(req *http.Request, a *attempts) (*http.Response, error) {
	for n := 1; ; n++ {
		sent := req
		if a.req.Op.Class != Safe {
			sent = t.withoutResend(req, a)
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
		// A server that is shutting down usually accepts the request on the next connection.
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

// withoutResend returns a copy of the request that net/http can't resend, unless none of it
// was written.
func (t onceTransport) withoutResend(req *http.Request, a *attempts) *http.Request {
	r := *req
	reopen := r.GetBody
	r.GetBody = nil
	if reopen != nil && t.http1.Load() {
		r.GetBody = func() (io.ReadCloser, error) {
			if a.http2.Load() {
				return nil, errResent
			}
			return reopen()
		}
	}
	if r.Body == nil || r.Body == http.NoBody {
		// net/http may always resend a request without a body.
		r.Body = io.NopCloser(strings.NewReader(""))
	}
	return &r
}
