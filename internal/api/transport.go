package api

import (
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/go-vercel/sandbox/internal/wire"
)

// MaxHeader limits the header of a response. Under net/http's own limit of 10 MB
// it could take 60 MB of memory.
const MaxHeader = 1 << 20

// DefaultTransport returns a transport for many goroutines that use one host. Unlike the
// standard transport it keeps an idle connection for each of them. It has no overall
// timeout, because streams last for hours; pings detect a dead peer. The read buffer holds
// chunks of output together with their sizes, and HTTP/2 frames: with the default of 16 KiB
// a download takes 1.5 times as long.
func DefaultTransport() *http.Transport {
	return &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		DialContext:            (&net.Dialer{Timeout: 30 * time.Second, KeepAlive: 15 * time.Second}).DialContext,
		ForceAttemptHTTP2:      true,
		MaxIdleConnsPerHost:    1024,
		IdleConnTimeout:        90 * time.Second,
		ReadBufferSize:         64 << 10,
		TLSHandshakeTimeout:    10 * time.Second,
		ExpectContinueTimeout:  time.Second,
		MaxResponseHeaderBytes: MaxHeader,
		HTTP2:                  &http.HTTP2Config{MaxReadFrameSize: 256 << 10, SendPingTimeout: 30 * time.Second, PingTimeout: 15 * time.Second},
	}
}

// bufferingTransport is the transport below the retries. It reads responses that are not
// streams to their end, so that one that breaks off counts as an attempt without a
// response. It also hides CloseIdleConnections, which retryablehttp calls when it gives up:
// other users of a shared transport would lose their connections.
type bufferingTransport struct {
	onceTransport
	gates [3]*gate // by quota
	clock *clock
}

func (t bufferingTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	a, ok := req.Context().Value(attemptsKey{}).(*attempts)
	if !ok {
		return t.next.RoundTrip(req)
	}
	a.verdict, a.limitSpent = verdict{}, false
	gate := t.gates[a.req.Op.quota()]
	if err := gate.acquire(req.Context(), a); err != nil {
		if req.Body != nil {
			req.Body.Close()
		}
		return nil, notSentError{err}
	}
	sent := time.Now()
	resp, err := t.exchange(a.startRequest(req), a)
	if err != nil || !a.isStream(resp) {
		a.finishRequest(err)
	}
	var apiHeader http.Header
	if err == nil {
		resp.Request = req
		if a.verdict.err == nil { // not a gateway's page
			apiHeader = resp.Header
			t.clock.update(apiHeader, sent)
		}
	}
	a.limitSpent = gate.release(req.Context(), a, apiHeader, a.verdict.kind == RateLimited && a.verdict.retry == always)
	return resp, err
}

// exchange sends the request and sets the verdict on the response.
func (t bufferingTransport) exchange(req *http.Request, a *attempts) (*http.Response, error) {
	resp, err := t.onceTransport.send(req, a)
	if err != nil {
		return nil, err
	}
	a.recordResponse(resp)
	success := resp.StatusCode >= 200 && resp.StatusCode < 300
	if success && !a.buffered {
		if a.verdict.err = a.req.Op.acceptStream(resp); a.verdict.err != nil {
			a.verdict.failureRule = noResponse
			resp.Body, _ = a.readErrorBody(req.Context(), resp) // may be an endless page
		}
		return resp, nil
	}
	if !success {
		body, err := a.readErrorBody(req.Context(), resp)
		resp.Body = body
		a.verdict = refusal(a.req.Op, resp, body.content.Bytes(), err)
		return resp, nil
	}
	in := wire.NewReader(resp.Body)
	body, err := readBody(req.Context(), resp, 0, func(io.Reader) io.Reader { return in })
	a.received.Add(in.Size)
	resp.Body = body
	switch {
	case err == wire.ErrTooLarge, err == wire.ErrTooMany:
		a.verdict.err, a.verdict.failureRule = err, tooMuch
		return resp, nil
	case err != nil:
		body.Close()
		a.wrote.Store(true) // there was a response
		return nil, &BodyError{err}
	case a.req.Open != nil && !a.bodyRead.Load():
		err = foreignError(resp, body.content.Bytes(), errors.New("it came before anything was sent"))
	default:
		err = a.req.accept(resp, body.content.Bytes(), a.out)
	}
	if err != nil {
		a.verdict.err, a.verdict.failureRule = err, noResponse
	}
	return resp, nil
}

// readErrorBody reads the start of a response that is not a success.
func (a *attempts) readErrorBody(ctx context.Context, resp *http.Response) (*responseBody, error) {
	body, err := readBody(ctx, resp, errorBodyTime, func(content io.Reader) io.Reader { return io.LimitReader(content, maxErrorBody) })
	a.received.Add(int64(body.content.Len()))
	return body, err
}

// readBody reads the body of a response through limit, and closes it. timeout, if not zero,
// limits the time.
func readBody(ctx context.Context, resp *http.Response, timeout time.Duration, limit func(io.Reader) io.Reader) (*responseBody, error) {
	// Not every transport stops reading a body at the end of the context.
	body := resp.Body
	stop := context.AfterFunc(ctx, func() { body.Close() })
	defer stop()
	content := io.Reader(body)
	if timeout > 0 {
		defer time.AfterFunc(timeout, func() { body.Close() }).Stop()
		if strings.EqualFold(resp.Header.Get("Content-Encoding"), "gzip") {
			// Streams are requested uncompressed, but proxies may compress their
			// errors.
			content = &lazyGzipReader{from: body}
		}
	}
	buf := buffers.Get().(*bytes.Buffer)
	buf.Reset()
	_, err := buf.ReadFrom(limit(content))
	body.Close()
	return &responseBody{Reader: bytes.NewReader(buf.Bytes()), content: buf}, err
}

var buffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// responseBody is a buffered body.
type responseBody struct {
	*bytes.Reader
	content *bytes.Buffer // nil after Close
}

// Close releases the buffer.
func (b *responseBody) Close() error {
	if b.content != nil && b.content.Cap() <= 1<<20 {
		buffers.Put(b.content)
	}
	b.content = nil
	b.Reader = bytes.NewReader(nil)
	return nil
}

var errRedirect = errors.New("refused to follow the redirect")

// redirectPolicy allows redirects within the base host. Neither headers nor a
// body are sent to another host, or over plain HTTP.
func redirectPolicy(base *url.URL, next func(*http.Request, []*http.Request) error) func(*http.Request, []*http.Request) error {
	return func(req *http.Request, via []*http.Request) error {
		if req.Method != via[0].Method {
			return errRedirect // a POST that becomes a GET is another operation
		}
		if req.URL.Host != base.Host || req.URL.Scheme != base.Scheme {
			if req.Body != nil && req.Body != http.NoBody || req.GetBody != nil && req.ContentLength != 0 {
				return errRedirect
			}
			// The Referer contains the request's path and query, which include
			// names and IDs.
			maps.DeleteFunc(req.Header, func(name string, _ []string) bool {
				return name != "Accept" && name != "Accept-Encoding"
			})
		}
		if next != nil {
			return next(req, via)
		}
		if len(via) >= 10 {
			return errors.New("stopped after 10 redirects")
		}
		return nil
	}
}
