// Package canned has an API that responds from memory, and tests of the client that use it.
// These tests don't link the emulator, which takes longer to compile and link than the client.
package canned

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/auth"
)

// Responses is an API for benchmarks. It does so little that they measure only the SDK.
type Responses func(*http.Request) (contentType, body string)

// RoundTrip reads the request, and responds with the results of the function.
func (f Responses) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Body != nil {
		if _, err := io.Copy(io.Discard, req.Body); err != nil {
			return nil, err
		}
		if err := req.Body.Close(); err != nil {
			return nil, err
		}
	}
	status := http.StatusOK
	contentType, body := f(req)
	if _, id, ok := strings.Cut(req.URL.Path, "/cmd/"); ok && req.Method == http.MethodGet && !strings.HasPrefix(id, "cmd_") {
		// This API ignores the IDs that the client chooses, so it does not find them.
		status, contentType, body = http.StatusNotFound, "application/json", `{"error":{"code":"not_found","message":"not found"}}`
	}
	return &http.Response{
		StatusCode: status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: req,
		Header: http.Header{"Content-Type": {contentType}},
		Body:   io.NopCloser(strings.NewReader(body)), ContentLength: int64(len(body)),
	}, nil
}

// These are objects of the API as JSON. Sandbox has a verb %d for the number in its name, and
// Command has a verb %s for its exit code.
const (
	Session = `{"id":"sess_1","memory":4096,"vcpus":2,"region":"iad1","runtime":"node24","timeout":300000,"status":"running",` +
		`"requestedAt":1760000000000,"startedAt":1760000000500,"createdAt":1760000000000,"cwd":"/vercel/sandbox","updatedAt":1760000000500}`
	Sandbox = `{"name":"box-%d","persistent":true,"region":"iad1","vcpus":2,"memory":4096,"runtime":"node24","timeout":300000,` +
		`"networkPolicy":{"mode":"allow-all"},"totalEgressBytes":1000,"totalIngressBytes":2000,"createdAt":1760000000000,"updatedAt":1760000000500,` +
		`"currentSessionId":"sess_1","status":"running","statusUpdatedAt":1760000000200,"cwd":"/vercel/sandbox","tags":{"env":"test","team":"sdk"}}`
	Command = `{"command":{"id":"cmd_1","name":"echo","args":["hello"],"cwd":"/vercel/sandbox","sessionId":"sess_1","exitCode":%s,"startedAt":1760000001000}}`
)

// Client returns a client that gets these responses.
func Client(b testing.TB, resp Responses) *sandbox.Client {
	b.Helper()
	c, err := sandbox.NewClient(&sandbox.ClientOptions{
		BaseURL:     "https://api.test",
		HTTPClient:  &http.Client{Transport: resp},
		Credentials: auth.Static(auth.Credentials{Token: "token", TeamID: "team", ProjectID: "project"}),
	})
	if err != nil {
		b.Fatal(err)
	}
	return c
}

// Box creates a sandbox. Its later requests get the given responses.
func Box(b testing.TB, resp Responses) *sandbox.Sandbox {
	b.Helper()
	created := false
	c := Client(b, func(req *http.Request) (string, string) {
		if !created {
			created = true
			return "application/json", `{"sandbox":` + fmt.Sprintf(Sandbox, 0) + `,"session":` + Session + `,"routes":[]}`
		}
		return resp(req)
	})
	sb, err := c.Create(b.Context(), nil)
	if err != nil {
		b.Fatal(err)
	}
	return sb
}

// Log returns responses with a command and its log.
func Log(command, log string) Responses {
	return func(req *http.Request) (string, string) {
		if strings.HasSuffix(req.URL.Path, "/logs") {
			return "application/x-ndjson", log
		}
		return "application/json", command
	}
}
