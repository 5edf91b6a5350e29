package promises_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/auth"
	"github.com/go-vercel/sandbox/internal/test/canned"
	"github.com/go-vercel/sandbox/internal/test/needs"
	"github.com/go-vercel/sandbox/internal/test/testkit"
)

// stranger is a server in place of the API. It responds to every request in the same way.
type stranger struct {
	name   string
	status int
	header http.Header
	body   string
}

func strangers() []stranger {
	const page = "<html><head><title>Sign in</title></head><body><h1>Please accept our terms</h1></body></html>"
	html := http.Header{"Content-Type": {"text/html; charset=utf-8"}}
	with := func(name, value string) http.Header {
		h := html.Clone()
		h.Set(name, value)
		return h
	}
	object := http.Header{"Content-Type": {"application/json; charset=utf-8"}}
	rows := []stranger{
		{"a page", 200, html, page},
		{"a page that says it is JSON", 200, object, page},
		{"a page that says it is a file", 200, with("Content-Type", "application/octet-stream"), page},
		{"a page that says it has records", 200, with("Content-Type", "application/x-ndjson"), page},
		{"nothing", 200, html, ""},
		{"nothing, as JSON", 200, object, ""},
		{"null", 200, object, "null"},
		{"a list", 200, object, "[]"},
		{"a text", 200, object, `"ok"`},
		{"401 of a proxy", 401, with("Www-Authenticate", `Basic realm="proxy"`), page},
		{"401 in JSON", 401, object, `{"error":"unauthorized","message":"sign in"}`},
		{"404 in JSON", 404, object, `{"message":"no Route matched with those values"}`},
		{"407 of a proxy", 407, with("Proxy-Authenticate", `Basic realm="proxy"`), page},
		{"422 in JSON", 422, object, `{"errors":[]}`},
		{"503 for an hour", 503, with("Retry-After", "3600"), page},
		{"307 without a place", 307, html, ""},
	}
	for _, wait := range []string{"1", "-1", "1000000000", "1e400"} {
		rows = append(rows, stranger{"429 for " + wait + " seconds", 429, with("Retry-After", wait), page})
	}
	for _, status := range []int{301, 302, 303, 307, 308} {
		for name, place := range map[string]string{"here": "/login", "elsewhere": "https://login.test/"} {
			rows = append(rows, stranger{fmt.Sprintf("a login %s, %d", name, status), status, with("Location", place), page})
		}
	}
	for _, status := range []int{
		400, 402, 403, 404, 405, 408, 409, 410, 413, 418, 425, 429, 451, 499, 500, 501, 502, 503, 504, 511, 520, 599,
	} {
		rows = append(rows, stranger{fmt.Sprint(status), status, html, page})
	}
	return rows
}

// apiErrors are the errors that a call may return only after a response of the API.
var apiErrors = []error{
	sandbox.ErrNotFound, sandbox.ErrUnauthorized, sandbox.ErrDeleted, sandbox.ErrStopped, sandbox.ErrConflict, sandbox.ErrSnapshotNotFound,
	sandbox.ErrQuotaExceeded, sandbox.ErrReplaced, sandbox.ErrImageNotReady, fs.ErrNotExist, fs.ErrExist, fs.ErrPermission, io.EOF,
}

// TestNotTheAPI calls every method that takes a context while a stranger responds. Each
// call returns an error, but none of apiErrors. Hosts other than the API's get neither the
// token nor a body. The client sends a start once, and returns ErrOutcomeUnknown. By
// default each stranger responds to the starts and some of the other methods.
func TestNotTheAPI(t *testing.T) {
	t.Parallel()
	names := callsWithContext(t)
	calls := 0
	for i, s := range strangers() {
		t.Run(s.name, func(t *testing.T) {
			for j, name := range names {
				if (i+j)%16 != 0 && name != "Sandbox.StartCommand" && name != "Sandbox.RunCommand" && !needs.Slow() {
					continue
				}
				synctest.Test(t, func(t *testing.T) { s.play(t, name) })
				calls++
			}
		})
	}
	t.Logf("%d calls", calls)
}

func (s stranger) play(t *testing.T, name string) {
	typ, method, _ := strings.Cut(name, ".")
	var requests, starts atomic.Int64
	all := handles(t, canned.RoundTripper(func(req *http.Request) (*http.Response, error) {
		requests.Add(1)
		if testkit.IsRun(req) {
			starts.Add(1)
		}
		var body []byte
		if req.Body != nil {
			body, _ = io.ReadAll(req.Body)
			req.Body.Close()
		}
		if req.URL.Host != "api.test" {
			assert.Empty(t, req.Header.Get("Authorization")+string(body), "%s: the token and the body that %s gets", name, req.URL.Host)
		}
		resp := canned.Response(s.status, "", strings.NewReader(s.body))
		resp.Header, resp.Request = s.header.Clone(), req
		return resp, nil
	}))
	const limit = 20 * time.Minute
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	begin := time.Now()
	err := callForError(ctx, t, all, typ, method)
	took := time.Since(begin)
	switch method {
	case "KeepAlive", "EnsureTimeLeft": // these don't fail because of temporary faults
		return
	case "WaitForPort", "WaitForLog":
	default:
		assert.Less(t, took, limit, "%s did not return in time, %d requests", name, requests.Load())
	}
	assert.Positive(t, requests.Load(), "%s: requests", name)
	if !assert.Error(t, err, "%s", name) {
		return
	}
	for _, apiError := range apiErrors {
		assert.NotErrorIs(t, err, apiError, name)
	}
	if e, ok := errors.AsType[*sandbox.APIError](err); ok {
		assert.Empty(t, e.Code, name)
	}
	if method == "StartCommand" || method == "RunCommand" {
		assert.ErrorIs(t, err, sandbox.ErrOutcomeUnknown, name)
		assert.EqualValues(t, 1, starts.Load(), "%s: starts", name)
	}
}

// callForError is like callByName, but also reads the file that FileSystem.Open returns.
func callForError(ctx context.Context, t *testing.T, handles []any, typ, method string) error {
	if fsys, ok := handles[3].(*sandbox.FileSystem); ok && typ == "FileSystem" && method == "Open" {
		f, err := fsys.Open(ctx, "x", nil)
		if err == nil {
			_, err = io.Copy(io.Discard, f)
			f.Close()
		}
		return err
	}
	err, _ := reflect.TypeAssert[error](callByName(ctx, t, handles, typ, method, true))
	return err
}

// brokenResponses returns texts that a server writes to a connection, by their names. KIND
// stands for the requested content type.
func brokenResponses() map[string]string {
	const ok, success = "HTTP/1.1 200 OK\r\nContent-Type: KIND\r\n", canned.Begun + canned.Ended
	chunk := func(s string) string { return fmt.Sprintf("%x\r\n%s\r\n", len(s), s) }
	return map[string]string{
		"half of the JSON":            fmt.Sprintf("%sContent-Length: 40\r\n\r\n%s", ok, success[:40]),
		"a length that is too long":   fmt.Sprintf("%sContent-Length: 9999\r\n\r\n%s", ok, canned.Begun[:40]),
		"a length that is too short":  fmt.Sprintf("%sContent-Length: 50\r\n\r\n%s", ok, success),
		"two lengths":                 ok + "Content-Length: 10\r\nContent-Length: 20\r\n\r\n" + success,
		"1xx without end":             strings.Repeat("HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n", 100),
		"1xx, then 200":               fmt.Sprintf("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n%sContent-Length: %d\r\n\r\n%s", ok, len(success), success),
		"garbage":                     "SSH-2.0-OpenSSH\r\n",
		"nothing":                     "",
		"204":                         "HTTP/1.1 204 No Content\r\n\r\n",
		"a chunk that is none":        ok + "Transfer-Encoding: chunked\r\n\r\n" + chunk(canned.Begun[:40]) + "zz\r\n",
		"a cut within a chunk's size": ok + "Transfer-Encoding: chunked\r\n\r\n" + chunk(canned.Begun[:40]) + "1",
	}
}

// TestBrokenResponses: if the response to a start is broken HTTP, the client does not send
// the start again, and returns ErrOutcomeUnknown.
func TestBrokenResponses(t *testing.T) {
	t.Parallel()
	calls := map[string]func(ctx context.Context, sb *sandbox.Sandbox) error{
		"StartCommand": func(ctx context.Context, sb *sandbox.Sandbox) error {
			_, err := sb.StartCommand(ctx, "x", nil, nil)
			return err
		},
		"RunCommand": func(ctx context.Context, sb *sandbox.Sandbox) error {
			_, err := sb.RunCommand(ctx, "x", nil, nil)
			return err
		},
		"Refresh": func(ctx context.Context, sb *sandbox.Sandbox) error { return sb.Refresh(ctx) },
	}
	for response, text := range brokenResponses() {
		for name, call := range calls {
			t.Run(response+", "+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					starts, err := playBroken(t, name, text, call)
					if response == "1xx, then 200" && name == "RunCommand" {
						assert.NoError(t, err)
						return
					}
					require.Error(t, err)
					if name != "Refresh" {
						assert.Equal(t, 1, starts)
						assert.ErrorIs(t, err, sandbox.ErrOutcomeUnknown)
					}
				})
			})
		}
	}
}

// playBroken makes a call, responds to each of its requests with the broken response, and
// counts the starts.
func playBroken(t *testing.T, name, broken string, call func(context.Context, *sandbox.Sandbox) error) (starts int, err error) {
	getting := true
	tr := &http.Transport{DisableKeepAlives: true, DialContext: func(context.Context, string, string) (net.Conn, error) {
		here, there := net.Pipe()
		go func() {
			defer there.Close()
			req, err := http.ReadRequest(bufio.NewReader(there))
			if err != nil {
				return
			}
			if _, err := io.Copy(io.Discard, req.Body); err != nil {
				return
			}
			text, kind := broken, "application/json"
			switch {
			case getting:
				text = fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Type: KIND\r\nContent-Length: %d\r\n\r\n%s", len(canned.RunningSandbox), canned.RunningSandbox)
			case testkit.IsRun(req):
				starts++
				if name == "RunCommand" {
					kind = "application/x-ndjson"
				}
			}
			_, _ = io.WriteString(there, strings.ReplaceAll(text, "KIND", kind)) // the client may have closed the connection
		}()
		return here, nil
	}}
	defer tr.CloseIdleConnections()
	c, err := sandbox.NewClient(&sandbox.ClientOptions{
		HTTPClient: &http.Client{Transport: tr}, BaseURL: "http://127.0.0.1:1",
		Credentials: auth.Static(auth.Credentials{Token: "tok", TeamID: "team", ProjectID: "prj"}),
	})
	require.NoError(t, err)
	sb, err := c.Get(t.Context(), "box", &sandbox.GetOptions{NoResume: true})
	require.NoError(t, err)
	getting = false
	tr.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	err = call(ctx, sb)
	require.NoError(t, ctx.Err(), "the call did not return")
	return starts, err
}
