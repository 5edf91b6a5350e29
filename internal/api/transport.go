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
	"sync"
	"time"
)

// DefaultTransport returns a transport for many goroutines that talk to one
// host: an idle connection for each of them is kept, where the standard one
// keeps two. There is no overall timeout, since streams last for hours; pings
// notice a peer that is gone. The read buffer suits chunks of output, which are
// read with their sizes in one go; so do the frames of HTTP/2, of which the
// usual 16 KiB are as costly as four times that: a download takes one and a half
// times as long.
func DefaultTransport() *Transport {
	t := &Transport{turns: make(chan struct{}, maxDials)}
	t.Transport = &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           t.dialInTurn((&net.Dialer{Timeout: 30 * time.Second, KeepAlive: 15 * time.Second}).DialContext),
		ForceAttemptHTTP2:     true,
		MaxIdleConnsPerHost:   1024,
		IdleConnTimeout:       90 * time.Second,
		ReadBufferSize:        64 << 10,
		TLSHandshakeTimeout:   10 * time.Second,
		ExpectContinueTimeout: time.Second,
		HTTP2:                 &http.HTTP2Config{MaxReadFrameSize: 256 << 10, SendPingTimeout: 30 * time.Second, PingTimeout: 15 * time.Second},
	}
	return t
}

// wholeAnswers is the transport beneath the retries: it reads answers that are
// not streams to their end, so that one that breaks off counts as an attempt
// that got no answer. It also hides CloseIdleConnections, which retryablehttp
// calls whenever it gives up on a request: every other user of a shared
// transport would lose its connections.
type wholeAnswers struct{ next http.RoundTripper }

func (t wholeAnswers) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := t.next.RoundTrip(req)
	a, ok := req.Context().Value(attemptsKey{}).(*attempts)
	if err != nil || !ok {
		return resp, err
	}
	limit, patience := int64(maxAnswer+1), time.Duration(0)
	if resp.StatusCode < 200 || resp.StatusCode >= 300 {
		if a.op.Class != Safe || resp.StatusCode < 400 || transient(resp.StatusCode) {
			return resp, nil // its status says enough
		}
		limit, patience = maxErrorBody, errorBodyTime
	} else if !a.whole {
		return resp, nil
	}
	// Not every transport ends its bodies with the context.
	body := resp.Body
	stop := context.AfterFunc(req.Context(), func() { body.Close() })
	defer stop()
	if patience > 0 {
		defer time.AfterFunc(patience, func() { body.Close() }).Stop()
	}
	buf := buffers.Get().(*bytes.Buffer)
	buf.Reset()
	_, err = buf.ReadFrom(io.LimitReader(body, limit))
	body.Close()
	if err != nil {
		buffers.Put(buf)
		a.wrote.Store(true) // it was answered, after all
		return nil, &BodyError{Err: err}
	}
	resp.Body = &answerBody{Reader: bytes.NewReader(buf.Bytes()), content: buf}
	return resp, nil
}

var buffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// answerBody is the body of an answer that was read.
type answerBody struct {
	*bytes.Reader
	content *bytes.Buffer // nil after Close
}

// Close gives the buffer back.
func (b *answerBody) Close() error {
	if b.content != nil && b.content.Cap() <= 1<<20 {
		buffers.Put(b.content)
	}
	b.content = nil
	b.Reader = bytes.NewReader(nil)
	return nil
}

var errRedirect = errors.New("refused to follow the redirect")

// redirectPolicy lets redirects within the base host pass. To another host, or
// down to plain HTTP, neither headers nor a request's body travel along.
func redirectPolicy(base *url.URL, next func(*http.Request, []*http.Request) error) func(*http.Request, []*http.Request) error {
	return func(req *http.Request, via []*http.Request) error {
		if req.URL.Host != base.Host || req.URL.Scheme != base.Scheme {
			if req.Body != nil && req.Body != http.NoBody || req.GetBody != nil && req.ContentLength != 0 {
				return errRedirect
			}
			// The Referer has the request's path and query, where names and IDs are.
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
