package canned

import (
	"bytes"
	"context"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/auth"
	"github.com/stretchr/testify/require"
)

// API is a function that a client uses as its transport. Like many transports other than
// those of net/http, it does not support httptrace.
type API func(*http.Request) (*http.Response, error)

// RoundTrip reads the whole request and calls the function, which can read the body again.
func (s API) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Body != nil {
		defer req.Body.Close()
		body, err := io.ReadAll(req.Body)
		if err != nil {
			return nil, err
		}
		req = req.Clone(req.Context())
		req.Body = io.NopCloser(bytes.NewReader(body))
	}
	if _, id, ok := strings.Cut(req.URL.Path, "/cmd/"); ok && req.Method == http.MethodGet && generated.MatchString(id) {
		// This API ignores the IDs that the client chooses, so it does not find them.
		return JSON(404, `{"error":{"code":"not_found","message":"not found"}}`), nil
	}
	return s(req)
}

// generated matches the IDs that the client chooses for commands.
var generated = regexp.MustCompile(`^c[0-9a-f]{32}$`)

// Client returns a client that sends its requests to the function.
func (s API) Client(t *testing.T) *sandbox.Client {
	t.Helper()
	c, err := sandbox.NewClient(&sandbox.ClientOptions{
		HTTPClient: &http.Client{Transport: s}, BaseURL: "https://api.test",
		Credentials: auth.Static(auth.Credentials{Token: "tok", TeamID: "team", ProjectID: "prj"}),
	})
	require.NoError(t, err)
	return c
}

// Response returns a response with the given content type.
func Response(status int, kind string, body io.Reader) *http.Response {
	return &http.Response{
		StatusCode: status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {kind}}, Body: io.NopCloser(body), ContentLength: -1,
	}
}

// JSON returns a JSON response.
func JSON(status int, body string) *http.Response {
	return Response(status, "application/json", strings.NewReader(body))
}

// Responses with a running sandbox, and with its command after the start and after the end.
const (
	RunningSandbox = `{"sandbox":{"name":"box","status":"running","currentSessionId":"s1"},"session":{"id":"s1","status":"running"},"routes":[]}`
	Begun          = `{"command":{"id":"c1","name":"x","args":[],"cwd":"/","sessionId":"s1","exitCode":null,"startedAt":1}}` + "\n"
	Ended          = `{"command":{"id":"c1","name":"x","args":[],"cwd":"/","sessionId":"s1","exitCode":3,"startedAt":1}}` + "\n"
)

// Sandbox returns a sandbox that sends its requests to the function. It gets the sandbox
// without calling the function.
func (s API) Sandbox(t *testing.T) *sandbox.Sandbox {
	t.Helper()
	c := API(func(req *http.Request) (*http.Response, error) {
		if req.Method == http.MethodGet && req.URL.Path == "/v2/sandboxes/box" && req.URL.Query().Get("resume") == "false" {
			return JSON(200, RunningSandbox), nil
		}
		return s(req)
	}).Client(t)
	sb, err := c.Get(t.Context(), "box", &sandbox.GetOptions{NoResume: true})
	require.NoError(t, err)
	return sb
}

// Silent is the transport of an API that never responds.
type Silent struct{}

// RoundTrip waits until the request's context ends.
func (Silent) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Body != nil {
		go func() { _, _ = io.Copy(io.Discard, req.Body) }()
		defer req.Body.Close()
	}
	return Unanswered(req)
}

// Argument returns a valid argument for a parameter of a method.
func Argument(t *testing.T, method string, i int, typ reflect.Type) reflect.Value {
	t.Helper()
	switch v := reflect.New(typ).Elem(); {
	case typ == reflect.TypeFor[fs.FS]():
		v.Set(reflect.ValueOf(fstest.MapFS{"file": {Data: []byte("x")}}))
		return v
	case typ == reflect.TypeFor[[]sandbox.File]():
		return reflect.ValueOf([]sandbox.File{{Path: "file", Content: []byte("x")}})
	case typ == reflect.TypeFor[sandbox.Signal]():
		return reflect.ValueOf(sandbox.SIGTERM)
	case typ == reflect.TypeFor[time.Duration]():
		return reflect.ValueOf(time.Minute)
	case typ == reflect.TypeFor[*sandbox.NetworkPolicy]():
		return reflect.ValueOf(&sandbox.NetworkPolicy{Mode: sandbox.PolicyDenyAll})
	case typ == reflect.TypeFor[*sandbox.UpdateOptions]():
		return reflect.ValueOf(&sandbox.UpdateOptions{VCPUs: 2})
	case reflect.TypeOf(regexp.MustCompile("")) == typ:
		return reflect.ValueOf(regexp.MustCompile("never"))
	case typ == reflect.TypeFor[[]byte]():
		return reflect.ValueOf(make([]byte, 100<<10))
	case typ == reflect.TypeFor[fs.WalkDirFunc]():
		return reflect.ValueOf(fs.WalkDirFunc(func(_ string, _ fs.DirEntry, err error) error { return err }))
	case typ == reflect.TypeFor[*sandbox.WaitForPortOptions]():
		return reflect.ValueOf(&sandbox.WaitForPortOptions{HTTPClient: &http.Client{Transport: Silent{}}})
	case method == "UploadDir" && i == 1:
		dir := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(dir, "file"), []byte("x"), 0o600))
		return reflect.ValueOf(dir)
	case strings.HasPrefix(method, "Download") && i == 2:
		return reflect.ValueOf(filepath.Join(t.TempDir(), "x"))
	case method == "ChmodSymbolic" && i == 2:
		return reflect.ValueOf("u+x")
	case typ.Kind() == reflect.String:
		v.SetString("x")
		return v
	case v.CanInt():
		v.SetInt(1000)
		return v
	default:
		return v
	}
}

// Unanswered waits until a request's context ends, like a request that gets no response.
func Unanswered(req *http.Request) (*http.Response, error) {
	<-req.Context().Done()
	return nil, req.Context().Err()
}

// Forgotten returns a stream that contains a text, and then neither more data nor an end.
func Forgotten(req *http.Request, text string) (*http.Response, error) {
	pr, pw := io.Pipe()
	context.AfterFunc(req.Context(), func() { pw.CloseWithError(req.Context().Err()) })
	go func() { _, _ = io.WriteString(pw, text) }()
	resp := Response(200, "application/x-ndjson", nil)
	resp.Body = pr
	return resp, nil
}

// RoundTripper is a function that is a transport.
type RoundTripper func(*http.Request) (*http.Response, error)

// RoundTrip calls the function.
func (f RoundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
