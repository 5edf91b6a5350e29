package reliability_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/auth"
	"github.com/go-vercel/sandbox/internal/test/canned"
	"github.com/go-vercel/sandbox/internal/test/testkit"
)

// oddResponse is what a server, or what stands before it, writes to a connection
// for every request but those that tell the sandbox.
type oddResponse struct {
	name, text string // KIND is replaced by the requested content type
	status     int    // of an error or a redirect; zero if it is neither
}

func oddResponses() []oddResponse {
	const html = "<html>gateway</html>"
	response := func(status int, header, body string) string {
		return fmt.Sprintf("HTTP/1.1 %d X\r\nContent-Type: text/html\r\n%sContent-Length: %d\r\n\r\n%s", status, header, len(body), body)
	}
	const ok, success = "HTTP/1.1 200 OK\r\nContent-Type: KIND\r\n", canned.Begun + canned.Ended
	chunk := func(s string) string { return fmt.Sprintf("%x\r\n%s\r\n", len(s), s) }
	var odd []oddResponse
	for _, s := range []int{
		400, 401, 402, 403, 404, 405, 408, 409, 413, 418, 421, 425, 429, 431, 451, 499,
		500, 501, 502, 503, 504, 505, 520, 522, 524, 530, 599,
	} {
		odd = append(odd, oddResponse{fmt.Sprint(s), response(s, "", html), s})
	}
	for _, wait := range []string{"1", "-1", "1000000000", "1e400"} {
		odd = append(odd, oddResponse{"429 Retry-After " + wait, response(429, "Retry-After: "+wait+"\r\n", html), 429})
	}
	for _, s := range []int{301, 302, 303, 307, 308} {
		odd = append(
			odd,
			oddResponse{fmt.Sprint(s, " within the host"), response(s, "Location: /moved\r\n", ""), s},
			oddResponse{fmt.Sprint(s, " to another host"), response(s, "Location: http://evil.test/moved\r\n", ""), s},
		)
	}
	return append(
		odd,
		oddResponse{"503 Retry-After", response(503, "Retry-After: 1\r\n", html), 503},
		oddResponse{"307 without a place", response(307, "", ""), http.StatusTemporaryRedirect},
		oddResponse{"200 HTML", response(200, "", html), 0},
		oddResponse{"200 empty", response(200, "", ""), 0},
		oddResponse{"204", "HTTP/1.1 204 No Content\r\n\r\n", 0},
		oddResponse{"half of the JSON", fmt.Sprintf("%sContent-Length: 40\r\n\r\n%s", ok, success[:40]), 0},
		oddResponse{"a length that is too long", fmt.Sprintf("%sContent-Length: 9999\r\n\r\n%s", ok, canned.Begun[:40]), 0},
		oddResponse{"a length that is too short", fmt.Sprintf("%sContent-Length: 50\r\n\r\n%s", ok, success), 0},
		oddResponse{"two lengths", ok + "Content-Length: 10\r\nContent-Length: 20\r\n\r\n" + success, 0},
		oddResponse{"1xx without end", strings.Repeat("HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n", 100), 0},
		oddResponse{"1xx, then 200", fmt.Sprintf("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n%sContent-Length: %d\r\n\r\n%s", ok, len(success), success), 0},
		oddResponse{"garbage", "SSH-2.0-OpenSSH\r\n", 0},
		oddResponse{"nothing", "", 0},
		oddResponse{"a chunk that is none", ok + "Transfer-Encoding: chunked\r\n\r\n" + chunk(canned.Begun[:40]) + "zz\r\n", 0},
		oddResponse{"a cut within a chunk's length", ok + "Transfer-Encoding: chunked\r\n\r\n" + chunk(canned.Begun[:40]) + "1", 0},
	)
}

// TestOddResponses: whatever the response to a start, it is sent once, and the
// error says that it may have begun; neither the token nor the body goes to
// another host.
func TestOddResponses(t *testing.T) {
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
	played := 0
	for _, odd := range oddResponses() {
		for name, call := range calls {
			t.Run(odd.name+", "+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { odd.play(t, name, call) })
			})
			played++
		}
	}
	t.Logf("%d responses", played)
}

func (o oddResponse) play(t *testing.T, name string, call func(context.Context, *sandbox.Sandbox) error) {
	starts, telling := 0, true
	tr := &http.Transport{DisableKeepAlives: true, DialContext: func(_ context.Context, _, address string) (net.Conn, error) {
		here, there := net.Pipe()
		go func() {
			defer there.Close()
			req, err := http.ReadRequest(bufio.NewReader(there))
			if err != nil {
				return
			}
			body, err := io.ReadAll(req.Body)
			if err != nil {
				return
			}
			if address != "127.0.0.1:1" {
				assert.Empty(t, req.Header.Get("Authorization")+string(body), "what %s gets", address)
			}
			text, kind := o.text, "application/json"
			switch {
			case telling:
				text = fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Type: KIND\r\nContent-Length: %d\r\n\r\n%s", len(canned.RunningSandbox), canned.RunningSandbox)
			case testkit.IsRun(req):
				starts++
				if name == "RunCommand" {
					kind = "application/x-ndjson"
				}
			}
			_, _ = io.WriteString(there, strings.ReplaceAll(text, "KIND", kind)) // who asked may have gone
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
	telling = false
	tr.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	err = call(ctx, sb)
	require.NoError(t, ctx.Err(), "it goes on for ever")
	if o.name == "1xx, then 200" && name == "RunCommand" {
		assert.NoError(t, err)
		return
	}
	require.Error(t, err)
	if name == "Refresh" {
		return
	}
	assert.Equal(t, 1, starts)
	require.ErrorIs(t, err, sandbox.ErrOutcomeUnknown, "none of these is the API's word")
}
