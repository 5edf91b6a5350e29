package api

import (
	"errors"
	"maps"
	"net"
	"net/http"
	"net/url"
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
