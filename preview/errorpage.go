package preview

import (
	"context"
	"errors"
	"fmt"
	"html"
	"net"
	"net/http"
	"strings"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/internal/edge"
	"github.com/go-vercel/sandbox/internal/redact"
)

// writeError responds with the reason why there is no response of the server. It shows
// visitors no details.
func writeError(w http.ResponseWriter, r *http.Request, err error, log func(string, ...any)) {
	if r.Context().Err() == nil {
		log("preview: %v", err)
	}
	status, title, text := http.StatusBadGateway, "No answer", "The server did not answer this request. It may have received it."
	edgeErr, refused := errors.AsType[*edge.Error](err)
	timeout, ok := errors.AsType[net.Error](err)
	opErr, _ := errors.AsType[*net.OpError](err)
	switch {
	case errors.Is(err, sandbox.ErrNotFound), errors.Is(err, sandbox.ErrSnapshotNotFound), errors.Is(err, sandbox.ErrNoRoute):
		status, title, text = http.StatusNotFound, "Gone", "There is nothing at this address any more."
	case refused && edgeErr.Code == edge.NotListening:
		status, title, text = http.StatusGatewayTimeout, "Not listening", "The machine runs, and its server does not listen yet."
		if edgeErr.Message != "" {
			text = redact.Printable(edgeErr.Message)
		}
	case refused:
		status, title, text = http.StatusGatewayTimeout, "Waking", "The machine is being started. Try again in a moment."
	case opErr != nil && opErr.Op == "dial":
		text = "The server can't be reached at the moment."
	case errors.Is(err, context.DeadlineExceeded), ok && timeout.Timeout():
		status, title, text = http.StatusGatewayTimeout, "No answer", "The server did not answer in time. It may have received the request."
	}
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	if refused && status == http.StatusGatewayTimeout {
		h.Set("Retry-After", "5")
	}
	if !strings.Contains(r.Header.Get("Accept"), "text/html") {
		http.Error(w, title+": "+text, status)
		return
	}
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'")
	var refresh, note string
	if h.Get("Retry-After") != "" && (r.Method == http.MethodGet || r.Method == http.MethodHead) {
		refresh, note = "\n"+`<meta http-equiv="refresh" content="5">`, "<p>This page loads again by itself.</p>\n"
	}
	title, text = html.EscapeString(title), html.EscapeString(text)
	w.WriteHeader(status)
	_, _ = fmt.Fprintf(w, failurePage, refresh, title, title, text, note) // the visitor may have left
}

// failurePage is a format of package fmt, because html/template would make each program a
// megabyte larger.
const failurePage = `<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">%s
<title>%s</title>
<style>body{font:1.1rem/1.5 system-ui,sans-serif;max-width:34rem;margin:20vh auto 0;padding:0 1.5rem;color-scheme:light dark}</style>
<h1>%s</h1>
<p>%s</p>
%s</html>
`
