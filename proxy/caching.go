package proxy

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
)

// privateWriter marks every response of [Handler] as private to the client.
// A shared cache in front, such as a CDN, identifies a response by the URL of the
// request. The intended host and the sandbox are only in request headers, which
// no server lists in Vary. A cache that stored a response would therefore give
// one sandbox's data to another, or to strangers without a token.
type privateWriter struct {
	http.ResponseWriter
	marked bool
}

// markPrivate marks the header as private, just before it is sent.
func (w *privateWriter) markPrivate() {
	if w.marked {
		return
	}
	w.marked = true
	h := w.Header()
	for name := range h {
		switch lower := strings.ToLower(name); {
		case strings.HasSuffix(lower, "cdn-cache-control"),
			lower == "surrogate-control", lower == "edge-control",
			lower == "x-accel-expires", lower == "x-litespeed-cache-control":
			delete(h, name)
		}
	}
	h["Cache-Control"] = []string{privateCacheControl(h["Cache-Control"])}
	for _, name := range [...]string{tokenHeader, hostHeader} {
		if !slices.Contains(h["Vary"], name) {
			h["Vary"] = append(h["Vary"], name)
		}
	}
}

// privateCacheControl returns the directives with private added and those for
// shared caches removed. It also removes private with field names, which allows
// caches to share the rest of the response.
func privateCacheControl(values []string) string {
	kept := []string{"private"}
	for _, value := range values {
		if strings.Contains(value, `"`) {
			// Quoted field names may contain commas. Every directive with
			// field names is for shared caches, or equivalent to no-cache.
			kept = append(kept, "no-cache")
			continue
		}
		for directive := range strings.SplitSeq(value, ",") {
			directive = strings.TrimSpace(directive)
			name, _, _ := strings.Cut(directive, "=")
			switch strings.ToLower(strings.TrimSpace(name)) {
			case "", "public", "s-maxage", "private", "proxy-revalidate":
			default:
				kept = append(kept, directive)
			}
		}
	}
	return strings.Join(kept, ", ")
}

func (w *privateWriter) WriteHeader(status int) {
	// Informational responses are not stored, and the header may still change.
	if status >= 200 || status == http.StatusSwitchingProtocols {
		w.markPrivate()
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *privateWriter) Write(p []byte) (int, error) {
	w.markPrivate()
	return w.ResponseWriter.Write(p)
}

// ReadFrom preserves the server's own way to copy, which may not need a buffer.
func (w *privateWriter) ReadFrom(r io.Reader) (int64, error) {
	w.markPrivate()
	return io.Copy(w.ResponseWriter, r)
}

// Flush implements http.Flusher.
func (w *privateWriter) Flush() { _ = w.FlushError() }

// FlushError is used by http.ResponseController.
func (w *privateWriter) FlushError() error {
	w.markPrivate()
	return http.NewResponseController(w.ResponseWriter).Flush()
}

// Hijack implements http.Hijacker.
func (w *privateWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return http.NewResponseController(w.ResponseWriter).Hijack()
}

// Unwrap is used by http.ResponseController.
func (w *privateWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
