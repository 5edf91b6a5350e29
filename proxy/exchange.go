package proxy

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"
)

var errResponseTooLarge = errors.New("proxy: the response is too large")

// exchange is what is to be said about one forwarded request. The counts may be
// written by the transport's goroutines, and the rest by the handler's only.
type exchange struct {
	start          time.Time
	edits          []edit
	status         int
	err            error
	complete       bool // the handler came to its end
	sent, received atomic.Int64
}

type exchangeKey struct{}

func exchangeOf(r *http.Request) *exchange {
	x, _ := r.Context().Value(exchangeKey{}).(*exchange)
	return x
}

// fail answers with a status and nothing else.
func (x *exchange) fail(w http.ResponseWriter, status int, err error) {
	if x != nil {
		x.status, x.err, x.complete = status, err, true
	}
	http.Error(w, http.StatusText(status), status)
}

// logLine says what became of a request. Paths, queries and headers stay out of
// it: tokens live in all three.
func (f *Forwarder) logLine(r *http.Request, x *exchange) {
	if !f.log.Enabled(r.Context(), slog.LevelInfo) {
		return
	}
	meta, _ := FromContext(r.Context())
	attrs := []slog.Attr{
		slog.String("method", r.Method),
		slog.String("scheme", r.URL.Scheme),
		slog.String("host", r.URL.Host),
		slog.Int("status", x.status),
		slog.Int64("sent", x.sent.Load()),
		slog.Int64("received", x.received.Load()),
		slog.Duration("duration", time.Since(x.start)),
		slog.String("team", meta.TeamID),
		slog.String("project", meta.ProjectID),
		slog.String("sandbox", meta.SandboxID),
		slog.String("name", meta.SandboxName),
	}
	if len(x.edits) > 0 {
		headers := make([]string, len(x.edits))
		for i, e := range x.edits {
			headers[i] = e.Header
		}
		attrs = append(attrs, slog.Any("rules", headers))
	}
	if x.err == nil && !x.complete {
		x.err = errors.New("proxy: the sandbox went away")
	}
	if x.err != nil {
		attrs = append(attrs, slog.Any("error", x.err))
	}
	f.log.LogAttrs(context.WithoutCancel(r.Context()), slog.LevelInfo, "sandbox request", attrs...)
}

// countedBody counts what is read from a body, and fails when it is more than
// the limit, if that is not 0.
type countedBody struct {
	io.ReadCloser
	count *atomic.Int64
	limit int64
	x     *exchange // takes errors; nil for the body of a request
}

func (b *countedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	total := b.count.Add(int64(n))
	if over := total - b.limit; b.limit > 0 && over > 0 {
		n = max(0, n-int(over))
		b.count.Store(b.limit)
		err = errResponseTooLarge
	}
	if err != nil && err != io.EOF && b.x != nil {
		b.x.err = err
	}
	return n, err
}

// countedTunnel counts what goes through a connection that was upgraded.
type countedTunnel struct {
	io.ReadWriteCloser
	x *exchange
}

func (t *countedTunnel) Read(p []byte) (int, error) {
	n, err := t.ReadWriteCloser.Read(p)
	t.x.received.Add(int64(n))
	return n, err
}

func (t *countedTunnel) Write(p []byte) (int, error) {
	n, err := t.ReadWriteCloser.Write(p)
	t.x.sent.Add(int64(n))
	return n, err
}
