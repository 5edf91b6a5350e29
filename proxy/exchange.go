package proxy

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/textproto"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"
)

var (
	errResponseTooLarge = errors.New("proxy: the response is too large")
	errBadStatus        = errors.New("proxy: the server responded with a status that can't be passed on")
)

// Reasons from which respondError chooses the status of the response.
const (
	reasonRequestTooLarge = "the request is too large"
	reasonTimeout         = "the time was up: 10 s to connect, or MaxDuration"
	reasonPrivate         = "the address is not a public one, and not in AllowPrivate"
)

// reasonFor returns why a request failed, in this package's words. The texts of
// the transport's errors must not be logged: they quote what a server sent,
// which may be a megabyte, the query of the request, or the inserted secret.
func reasonFor(err error) string {
	var timeout interface{ Timeout() bool }
	var certificate *tls.CertificateVerificationError
	var alert tls.AlertError
	var record tls.RecordHeaderError
	var protocol textproto.ProtocolError
	var lookup *net.DNSError
	var number syscall.Errno
	_, requestTooLarge := errors.AsType[*http.MaxBytesError](err)
	switch {
	case errors.Is(err, errPrivateAddress):
		return reasonPrivate
	case errors.Is(err, errResponseTooLarge):
		return "the response is too large"
	case errors.Is(err, errBadStatus):
		return "the server responded with a status that can't be passed on"
	case requestTooLarge:
		return reasonRequestTooLarge
	case errors.Is(err, context.Canceled):
		return "the sandbox went away"
	case errors.As(err, &lookup) && !lookup.IsTimeout:
		return "no address for the host"
	case errors.As(err, &timeout) && timeout.Timeout():
		return reasonTimeout
	case errors.As(err, &certificate):
		return "the server's certificate is not trusted"
	case errors.As(err, &alert):
		return alert.Error()
	case errors.As(err, &record):
		return "the server does not speak TLS"
	case errors.As(err, &number):
		return number.Error()
	case errors.As(err, &protocol):
		return "the server's response is malformed"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "the server closed the connection"
	}
	return "the response is malformed or the connection broke"
}

// exchange describes one forwarded request. The transport's goroutines may
// write the counts; only the handler's goroutine writes the rest.
type exchange struct {
	start          time.Time
	edits          []headerEdit
	status         int
	reason         string // why it failed, or ""
	cause          error  // error of an unavailable Secret, only for the log
	complete       bool   // the handler has finished
	sent, received atomic.Int64
}

type exchangeKey struct{}

func exchangeOf(r *http.Request) *exchange {
	x, _ := r.Context().Value(exchangeKey{}).(*exchange)
	return x
}

// fail responds with a status. The body contains the text of the status, but not the reason.
func (x *exchange) fail(w http.ResponseWriter, status int, reason string) {
	if x != nil {
		x.status, x.reason, x.complete = status, reason, true
	}
	http.Error(w, http.StatusText(status), status)
}

// logLine logs the result of a request, without paths, queries and headers: all
// three may contain tokens.
func (f *Forwarder) logLine(r *http.Request, x *exchange) {
	if !f.log.Enabled(r.Context(), slog.LevelInfo) && (x.cause == nil || !f.log.Enabled(r.Context(), slog.LevelWarn)) {
		return
	}
	meta, _ := FromContext(r.Context())
	attrs := []slog.Attr{
		slog.String("method", truncate(r.Method)),
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
	if x.reason == "" && !x.complete {
		x.reason = "the sandbox went away"
	}
	if x.reason != "" {
		attrs = append(attrs, slog.String("error", x.reason))
	}
	level := slog.LevelInfo
	if x.cause != nil {
		level = slog.LevelWarn
		attrs = append(attrs, slog.String("cause", strconv.QuoteToGraphic(truncate(x.cause.Error()))))
	}
	f.log.LogAttrs(context.WithoutCancel(r.Context()), level, "sandbox request", attrs...)
}

// countedBody counts the bytes read from a body. It fails above limit, if limit is not zero.
type countedBody struct {
	io.ReadCloser
	count *atomic.Int64
	limit int64
	x     *exchange // receives errors; nil for the body of a request
}

func (b *countedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	total := b.count.Add(int64(n))
	if excess := total - b.limit; b.limit > 0 && excess > 0 {
		n = max(0, n-int(excess))
		b.count.Store(b.limit)
		err = errResponseTooLarge
	}
	if err != nil && err != io.EOF && b.x != nil {
		b.x.reason = reasonFor(err)
	}
	return n, err
}

// countedTunnel counts the bytes of an upgraded connection.
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
