// Package oidctest simulates, in memory, the servers and the machine that
// tokens come from.
package oidctest

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"
)

// Token returns a token with these claims that expires after d, or never if d
// is 0.
func Token(teamID, projectID string, d time.Duration) string {
	claims := map[string]any{"owner_id": teamID, "project_id": projectID, "nonce": time.Now().UnixNano()}
	if d != 0 {
		claims["exp"] = time.Now().Add(d).Unix()
	}
	return Sign(claims)
}

// Sign returns a token with the given claims, unsigned like those of the
// conformance suite.
func Sign(claims map[string]any) string {
	encode := func(v any) string {
		data, _ := json.Marshal(v)
		return base64.RawURLEncoding.EncodeToString(data)
	}
	return encode(map[string]string{"alg": "none", "typ": "JWT"}) + "." + encode(claims) + ".sig"
}

// Request is a request that a server received.
type Request struct {
	Method, Path  string // host and path without the query
	Query, Form   url.Values
	Authorization string
	Body          string
}

// String returns a short form, for comparing lists of requests.
func (r Request) String() string { return r.Method + " " + r.Path }

// Response is a server's response: a value to encode, or a string to send
// unchanged.
type Response struct {
	Status int // 0 is 200
	Body   any
	Err    error // the connection fails
	Header http.Header
}

// Vercel is a transport that stands in for every server. Its zero value answers each
// request with 418; Handle and Say set responses.
type Vercel struct {
	mu       sync.Mutex
	handlers map[string]func(Request) Response
	requests []Request
}

// Handle sets the response to requests such as "POST
// api.vercel.com/v1/projects/p/token".
func (v *Vercel) Handle(on string, resp func(Request) Response) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.handlers == nil {
		v.handlers = map[string]func(Request) Response{}
	}
	v.handlers[on] = resp
}

// Say sets the responses to requests: one value after the other, and the last
// one for all further requests.
func (v *Vercel) Say(on string, responses ...any) {
	i := 0
	v.Handle(on, func(Request) Response {
		v.mu.Lock()
		defer v.mu.Unlock()
		body := responses[min(i, len(responses)-1)]
		i++
		if a, ok := body.(Response); ok {
			return a
		}
		return Response{Body: body}
	})
}

// Discover responds to the discovery of OAuth endpoints like Vercel.
func (v *Vercel) Discover() {
	v.Say("GET vercel.com/.well-known/openid-configuration", map[string]string{
		"issuer":                        "https://vercel.com",
		"device_authorization_endpoint": "https://api.vercel.com/login/oauth/device-authorization",
		"token_endpoint":                "https://api.vercel.com/login/oauth/token",
	})
}

// Requests returns the requests that were received so far.
func (v *Vercel) Requests() []Request {
	v.mu.Lock()
	defer v.mu.Unlock()
	return append([]Request(nil), v.requests...)
}

// Asked returns the requests in their short form.
func (v *Vercel) Asked() []string {
	asked := []string{}
	for _, r := range v.Requests() {
		asked = append(asked, r.String())
	}
	return asked
}

// Client talks to the servers.
func (v *Vercel) Client() *http.Client { return &http.Client{Transport: v} }

// RoundTrip implements http.RoundTripper.
func (v *Vercel) RoundTrip(req *http.Request) (*http.Response, error) {
	r := Request{
		Method: req.Method, Path: req.URL.Host + req.URL.EscapedPath(), Query: req.URL.Query(),
		Authorization: req.Header.Get("Authorization"),
	}
	if req.URL.Scheme != "https" {
		return nil, fmt.Errorf("a request in clear to %s", req.URL)
	}
	if req.Body != nil {
		data, err := io.ReadAll(req.Body)
		if err != nil {
			return nil, err
		}
		_ = req.Body.Close()
		r.Body = string(data)
		if strings.HasPrefix(req.Header.Get("Content-Type"), "application/x-www-form-urlencoded") {
			if r.Form, err = url.ParseQuery(r.Body); err != nil {
				return nil, err
			}
		}
	}
	v.mu.Lock()
	v.requests = append(v.requests, r)
	handler := v.handlers[r.String()]
	v.mu.Unlock()
	if err := req.Context().Err(); err != nil {
		return nil, err
	}
	if handler == nil {
		handler = func(Request) Response { return Response{Status: http.StatusTeapot, Body: "unscripted: " + r.String()} }
	}
	a := handler(r)
	if a.Err != nil {
		return nil, a.Err
	}
	text, isText := a.Body.(string)
	contentType := "text/html"
	if !isText {
		data, err := json.Marshal(a.Body)
		if err != nil {
			return nil, err
		}
		text, contentType = string(data), "application/json"
	}
	header := http.Header{"Content-Type": {contentType}}
	maps.Copy(header, a.Header)
	status := max(a.Status, http.StatusOK)
	return &http.Response{
		StatusCode: status, Status: fmt.Sprintf("%d %s", status, http.StatusText(status)), Header: header, Request: req,
		Body: io.NopCloser(strings.NewReader(text)), ContentLength: int64(len(text)), ProtoMajor: 1, ProtoMinor: 1,
	}, nil
}
