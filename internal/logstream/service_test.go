package logstream

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-vercel/sandbox/internal/api"
	"github.com/go-vercel/sandbox/internal/wire"
	"github.com/go-vercel/sandbox/observe"
)

// service is an API with one command, which prints its lines at given times and
// then ends. It runs on the fake clock.
type service struct {
	begin time.Time
	lines []line
	ends  time.Duration
	code  int
	// strikes modify the next requests for the log, and looks the next lookups of the
	// command. nil leaves a request unchanged.
	strikes, looks []func(*http.Request, *http.Response) (*http.Response, error)

	observer observe.Observer

	mu     sync.Mutex
	opened int
	looked int
}

type line struct {
	at     time.Duration
	stream string
	text   string
}

func (l line) record() string {
	text, err := json.Marshal(l.text)
	if err != nil {
		panic(err)
	}
	return fmt.Sprintf(`{"stream":%q,"data":%s}`+"\n", l.stream, text)
}

func (s *service) over() bool { return time.Since(s.begin) >= s.ends }

// want returns the complete output of a stream.
func (s *service) want(stream string) string {
	var b strings.Builder
	for _, l := range s.lines {
		if l.stream == stream {
			b.WriteString(l.text)
		}
	}
	return b.String()
}

func (s *service) command() string {
	code := "null"
	if s.over() {
		code = fmt.Sprint(s.code)
	}
	return `{"command":{"id":"c1","name":"x","args":[],"cwd":"/","sessionId":"s1","exitCode":` + code + `,"startedAt":1}}`
}

func reply(status int, kind string, body io.Reader) *http.Response {
	return &http.Response{
		StatusCode: status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {kind}}, Body: io.NopCloser(body), ContentLength: -1,
	}
}

func page(status int) *http.Response {
	return reply(status, "text/html", strings.NewReader("<html>proxy</html>"))
}

func refused(status int, code string) *http.Response {
	return reply(status, "application/json", strings.NewReader(fmt.Sprintf(`{"error":{"code":%q,"message":"no"}}`, code)))
}

// nextStep returns the modification of the next request.
func nextStep(plan *[]func(*http.Request, *http.Response) (*http.Response, error)) func(*http.Request, *http.Response) (*http.Response, error) {
	if len(*plan) == 0 {
		return nil
	}
	next := (*plan)[0]
	*plan = (*plan)[1:]
	return next
}

func (s *service) RoundTrip(req *http.Request) (*http.Response, error) {
	s.mu.Lock()
	var strike func(*http.Request, *http.Response) (*http.Response, error)
	logs := strings.HasSuffix(req.URL.Path, "/logs")
	if logs {
		s.opened++
		strike = nextStep(&s.strikes)
	} else {
		s.looked++
		strike = nextStep(&s.looks)
	}
	s.mu.Unlock()
	if trace := httptrace.ContextClientTrace(req.Context()); trace != nil && trace.GetConn != nil && trace.GotConn != nil {
		trace.GetConn("api.test:443")
		trace.GotConn(httptrace.GotConnInfo{})
	}
	switch {
	case logs && strike == nil:
		return s.log(req.Context()), nil
	case logs:
		return strike(req, s.log(req.Context()))
	case strike != nil:
		return strike(req, reply(200, "application/json", strings.NewReader(s.command())))
	}
	if req.URL.Query().Get("wait") != "" && !s.over() && !api.Sleep(req.Context(), s.ends-time.Since(s.begin)) {
		return nil, req.Context().Err()
	}
	return reply(200, "application/json", strings.NewReader(s.command())), nil
}

// log returns the response to a request for the log.
func (s *service) log(ctx context.Context) *http.Response {
	b := &logBody{s: s, ctx: ctx, closed: make(chan struct{})}
	resp := reply(200, "application/x-ndjson", nil)
	resp.Body = b
	return resp
}

// logBody delivers each line at its time.
type logBody struct {
	s      *service
	ctx    context.Context
	next   int
	left   string
	once   sync.Once
	closed chan struct{}
}

func (b *logBody) Read(p []byte) (int, error) {
	for b.left == "" {
		at := b.s.ends
		if b.next < len(b.s.lines) {
			at = b.s.lines[b.next].at
		}
		timer := time.NewTimer(max(0, at-time.Since(b.s.begin)))
		select {
		case <-timer.C:
		case <-b.ctx.Done():
			timer.Stop()
			return 0, b.ctx.Err()
		case <-b.closed:
			timer.Stop()
			return 0, http.ErrBodyReadAfterClose
		}
		if b.next == len(b.s.lines) {
			return 0, io.EOF
		}
		b.left = b.s.lines[b.next].record()
		b.next++
	}
	n := copy(p, b.left)
	b.left = b.left[n:]
	return n, nil
}

func (b *logBody) Close() error {
	b.once.Do(func() { close(b.closed) })
	return nil
}

// ending returns a number of bytes of a body and then an error.
type ending struct {
	io.ReadCloser
	left int
	err  error
}

func (e *ending) Read(p []byte) (int, error) {
	if e.left == 0 {
		return 0, e.err
	}
	n, err := e.ReadCloser.Read(p[:min(len(p), e.left)])
	e.left -= n
	return n, err
}

// cut ends the response after a number of bytes. A clean end has a matching Content-Length,
// as from a proxy that buffers.
func cut(after int, err error) func(*http.Request, *http.Response) (*http.Response, error) {
	return func(_ *http.Request, resp *http.Response) (*http.Response, error) {
		resp.Body, resp.ContentLength = &ending{resp.Body, after, err}, -1
		if err == io.EOF {
			resp.ContentLength = int64(after)
		}
		return resp, nil
	}
}

// replaceResponse replaces the response.
func replaceResponse(resp func() *http.Response) func(*http.Request, *http.Response) (*http.Response, error) {
	return func(*http.Request, *http.Response) (*http.Response, error) { return resp(), nil }
}

// reach returns the service's command as a Command.
func (s *service) reach(t *testing.T) Command {
	t.Helper()
	base, err := url.Parse("https://api.test")
	if err != nil {
		t.Fatal(err)
	}
	client := api.New(api.Config{
		BaseURL: base, HTTPClient: &http.Client{Transport: s}, UserAgent: func() string { return "test" }, Observer: s.observer,
		Auth: func(context.Context) (api.Auth, error) { return api.Auth{Token: "tok", TeamID: "team"}, nil },
	})
	return Command{Client: client, Session: "s1", ID: "c1", Limits: Limits{Attempts: 20, Limit: 5 * time.Minute, Wait: 400 * time.Millisecond}}
}

// drain reads to the end and returns stdout and stderr.
func drain(r *Reader) (stdout, stderr string, err error) {
	defer r.Close()
	for {
		kind, data, err := r.Next()
		switch {
		case err == io.EOF:
			return stdout, stderr, nil
		case err != nil:
			return stdout, stderr, err
		case kind == wire.KindStderr:
			stderr += string(data)
		default:
			stdout += string(data)
		}
	}
}
