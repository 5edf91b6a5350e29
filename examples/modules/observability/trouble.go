package main

import (
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
)

// trouble is a transport like a bad network: some requests get a 503, and some
// streams break.
type trouble struct{ next http.RoundTripper }

func (t trouble) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Method == http.MethodGet && rand.IntN(10) == 0 {
		return &http.Response{
			StatusCode: http.StatusServiceUnavailable, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: req,
			Header: http.Header{"Content-Type": {"application/json"}},
			Body:   io.NopCloser(strings.NewReader(`{"error":{"code":"service_unavailable","message":"come back later"}}`)),
		}, nil
	}
	resp, err := t.next.RoundTrip(req)
	if err == nil && strings.HasPrefix(resp.Header.Get("Content-Type"), "application/x-ndjson") && rand.IntN(5) == 0 {
		resp.Body = &cutBody{resp.Body, 500 + rand.IntN(5000)}
	}
	return resp, err
}

// cutBody is a response body that breaks after some bytes.
type cutBody struct {
	io.ReadCloser
	left int
}

func (b *cutBody) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, io.ErrUnexpectedEOF
	}
	n, err := b.ReadCloser.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}
