package testkit

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/sandboxtest"
	"github.com/stretchr/testify/require"
)

// Gateway is a transport between a client and the emulator. A test sets a function, which
// may respond in place of the emulator.
type Gateway struct {
	Next http.RoundTripper
	mu   sync.Mutex
	via  func(req *http.Request, next http.RoundTripper) (*http.Response, error)
}

// RoundTrip implements [http.RoundTripper].
func (g *Gateway) RoundTrip(req *http.Request) (*http.Response, error) {
	g.mu.Lock()
	via := g.via
	g.mu.Unlock()
	if via == nil {
		return g.Next.RoundTrip(req)
	}
	return via(req, g.Next)
}

// Set sets the function. If it is nil, all requests go to the emulator.
func (g *Gateway) Set(via func(*http.Request, http.RoundTripper) (*http.Response, error)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.via = via
}

// ShiftDate returns a function for [Gateway.Set] that adds d to the Date of every response.
func ShiftDate(d time.Duration) func(*http.Request, http.RoundTripper) (*http.Response, error) {
	return func(req *http.Request, next http.RoundTripper) (*http.Response, error) {
		resp, err := next.RoundTrip(req)
		if err == nil {
			resp.Header.Set("Date", time.Now().Add(d).UTC().Format(http.TimeFormat))
		}
		return resp, err
	}
}

// AsPending changes the session's status in a response to pending.
func AsPending(resp *http.Response) error {
	var body map[string]any
	err := json.NewDecoder(resp.Body).Decode(&body)
	if err := errors.Join(err, resp.Body.Close()); err != nil {
		return err
	}
	body["session"].(map[string]any)["status"] = "pending"
	data, err := json.Marshal(body)
	resp.Body, resp.ContentLength = io.NopCloser(bytes.NewReader(data)), int64(len(data))
	return err
}

// LightBehind is [BehindOn] with a [LightServer].
func LightBehind(t *testing.T, opts sandbox.ClientOptions, create *sandbox.CreateOptions) (*sandboxtest.Server, *Gateway, *sandbox.Sandbox, *sandbox.Sandbox) {
	t.Helper()
	return BehindOn(t, LightServer(t), opts, create)
}

// BehindOn returns a sandbox of srv whose client uses a gateway, and a handle of the same
// sandbox whose client does not. It is for tests whose rows share an emulator.
func BehindOn(t *testing.T, srv *sandboxtest.Server, opts sandbox.ClientOptions, create *sandbox.CreateOptions) (*sandboxtest.Server, *Gateway, *sandbox.Sandbox, *sandbox.Sandbox) {
	t.Helper()
	gate := &Gateway{Next: Transport(t)}
	opts.HTTPClient = &http.Client{Transport: gate}
	sb, err := Client(t, srv, opts).Create(t.Context(), Lasting(create))
	require.NoError(t, err)
	direct, err := Client(t, srv, sandbox.ClientOptions{}).Get(t.Context(), sb.Name(), &sandbox.GetOptions{NoResume: true})
	require.NoError(t, err)
	return srv, gate, sb, direct
}

// IsRun reports whether a request starts a command.
func IsRun(req *http.Request) bool {
	return req.Method == http.MethodPost && strings.HasSuffix(req.URL.Path, "/cmd")
}

// IsLogs reports whether a request reads a log.
func IsLogs(req *http.Request) bool { return strings.HasSuffix(req.URL.Path, "/logs") }

// IsLook reports whether a request looks up a command.
func IsLook(req *http.Request) bool {
	_, id, ok := strings.Cut(req.URL.Path, "/cmd/")
	return req.Method == http.MethodGet && ok && !strings.Contains(id, "/")
}

// CleanCut returns the body up to a number of bytes. It then ends without an error.
func CleanCut(body io.ReadCloser, after int64) io.ReadCloser {
	return struct {
		io.Reader
		io.Closer
	}{io.LimitReader(body, after), body}
}

// FirstRecord returns the body up to the end of its first record. It then ends without an error.
func FirstRecord(body io.ReadCloser) io.ReadCloser {
	pr, pw := io.Pipe()
	go func() {
		line, err := bufio.NewReader(body).ReadString('\n')
		if err == nil {
			_, err = io.WriteString(pw, line)
		}
		pw.CloseWithError(err) // with nil, the reader gets io.EOF
		body.Close()
	}()
	return pr
}
