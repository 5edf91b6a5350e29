package session

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	_ "embed" // the page
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"

	"go.temporal.io/sdk/client"

	"github.com/go-vercel/sandbox"
)

var (
	//go:embed page.html
	pageFile []byte
	//go:embed screen.js
	screenFile []byte

	pageHTML = bytes.Replace(pageFile, []byte("//screen.js\n"), screenFile, 1)
)

// HandlerOptions configures [Client.Handler].
type HandlerOptions struct {
	// Authorize is called before each request for a session. id is empty before a new
	// session starts, even if the request has an unknown ID. An error refuses the request
	// with status 403, or 401 if it matches [ErrToken]. If Authorize is nil, anyone can start
	// sessions and use those whose ID they know. [Token] admits a single user.
	Authorize func(r *http.Request, id string) error
	// Started is called with the ID of each new session before its stream begins, for
	// example to record the owner. An error destroys the session and refuses the request
	// with status 403.
	Started func(r *http.Request, id string) error
	// Page serves the web page at "/".
	Page bool
	// Logger gets the handler's failures. Nil discards them.
	Logger *slog.Logger
}

// ErrToken means that a request lacks the token of [Token].
var ErrToken = errors.New("the request lacks the service's token, in a header Authorization: Bearer TOKEN")

// Token returns a function for [HandlerOptions].Authorize that admits requests with the header
// "Authorization: Bearer" and the token. The page sends the token of its address, after
// "#token=". An empty token admits nobody.
func Token(token string) func(*http.Request, string) error {
	want := sha256.Sum256([]byte(token))
	return func(r *http.Request, _ string) error {
		scheme, got, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		has := sha256.Sum256([]byte(got))
		if token == "" || !strings.EqualFold(scheme, "Bearer") || subtle.ConstantTimeCompare(has[:], want[:]) != 1 {
			return ErrToken
		}
		return nil
	}
}

// The body of a request may have maxBody bytes, and must arrive within bodyTimeout.
const (
	maxBody     = 256 << 10
	bodyTimeout = 10 * time.Second
)

// Handler serves sessions over HTTP: POST /start, /command, /interrupt and /destroy,
// GET /events, /session and /health, and the page. /health tells anyone whether Temporal
// responds. The handler refuses requests from pages of other origins. opts may be nil.
//
// /start and /events respond with a stream of one JSON object per line or, if
// the request accepts text/event-stream, with server-sent events whose IDs are
// cursors. To continue a broken stream, repeat the request with the cursor of
// the last object received.
func (c *Client) Handler(opts *HandlerOptions) http.Handler {
	h := &handler{c: c, opts: *cmp.Or(opts, new(HandlerOptions))}
	h.opts.Logger = cmp.Or(h.opts.Logger, slog.New(slog.DiscardHandler))
	routes := map[string]http.HandlerFunc{"POST /start": h.start, "GET /events": h.events} // streams
	for route, serve := range map[string]http.HandlerFunc{
		"GET /session": h.session, "GET /health": h.health, "POST /command": h.command, "POST /interrupt": h.interrupt, "POST /destroy": h.destroy,
	} {
		routes[route] = func(w http.ResponseWriter, r *http.Request) {
			ctx, cancel := context.WithTimeout(r.Context(), engineTimeout)
			defer cancel()
			serve(w, r.WithContext(ctx))
		}
	}
	if h.opts.Page {
		routes["GET /{$}"] = servePage
	}
	mux := http.NewServeMux()
	for route, serve := range routes {
		mux.HandleFunc(route, serve)
	}
	noSniff := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// A browser must never run the output of a command as a page.
		w.Header().Set("X-Content-Type-Options", "nosniff")
		mux.ServeHTTP(w, r)
	})
	return http.NewCrossOriginProtection().Handler(noSniff)
}

func servePage(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
	_, _ = w.Write(pageHTML)
}

// health is for load balancers. Without Temporal, no other route works.
func (h *handler) health(w http.ResponseWriter, r *http.Request) {
	_, err := h.c.temporal.CheckHealth(r.Context(), &client.CheckHealthRequest{})
	h.finish(w, r, map[string]any{"ok": true}, err)
}

type handler struct {
	c    *Client
	opts HandlerOptions
}

// body contains the parameters of all routes.
type body struct {
	RunID   string `json:"runId"`
	Cursor  string `json:"cursor"`
	Lines   *int   `json:"lines"`
	Command string `json:"command"`
	Key     string `json:"key"`
	Secret  bool   `json:"secret"`
	Title   string `json:"title"`
	ID      string `json:"id"`
	Signal  string `json:"signal"`
	DestroyOptions
}

// readRequest reads the parameters of a request and authorizes it. If it returns false, it has
// responded.
func (h *handler) readRequest(w http.ResponseWriter, r *http.Request, needsRun bool) (b body, ok bool) {
	if r.Method == http.MethodGet {
		q := r.URL.Query()
		b.RunID, b.Cursor = q.Get("runId"), q.Get("cursor")
		if text := q.Get("lines"); text != "" {
			n, err := strconv.Atoi(text)
			if err != nil {
				h.refuse(w, http.StatusBadRequest, "lines is not a number")
				return b, false
			}
			b.Lines = &n
		}
	} else {
		control := http.NewResponseController(w) // best effort: other servers may not support deadlines
		_ = control.SetReadDeadline(time.Now().Add(bodyTimeout))
		data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
		if err == nil {
			_ = control.SetReadDeadline(time.Time{})
		}
		if _, large := errors.AsType[*http.MaxBytesError](err); large {
			h.refuse(w, http.StatusRequestEntityTooLarge, fmt.Sprintf("a body of more than %d bytes", maxBody))
			return b, false
		}
		if err != nil {
			w.Header().Set("Connection", "close")
			h.refuse(w, http.StatusRequestTimeout, "the body did not arrive in time")
			return b, false
		}
		// Without a valid body, /start starts a new session.
		if err := json.Unmarshal(data, &b); err != nil && needsRun {
			h.refuse(w, http.StatusBadRequest, "the body is not a JSON object with a runId")
			return b, false
		}
	}
	if needsRun && b.RunID == "" {
		h.refuse(w, http.StatusBadRequest, "runId is missing")
		return b, false
	}
	return b, h.allowed(w, r, b.RunID)
}

// allowed authorizes a request. If it returns false, it has responded.
func (h *handler) allowed(w http.ResponseWriter, r *http.Request, id string) bool {
	if h.opts.Authorize == nil {
		return true
	}
	err := h.opts.Authorize(r, id)
	switch {
	case err == nil:
		return true
	case errors.Is(err, ErrToken):
		w.Header().Set("WWW-Authenticate", "Bearer")
		h.refuse(w, http.StatusUnauthorized, err.Error())
	default:
		h.refuse(w, http.StatusForbidden, err.Error())
	}
	return false
}

func (h *handler) respond(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}

// finish responds with v, or with err if it is not nil.
func (h *handler) finish(w http.ResponseWriter, r *http.Request, v any, err error) {
	if err != nil {
		h.fail(w, r, err)
	} else {
		h.respond(w, http.StatusOK, v)
	}
}

func (h *handler) refuse(w http.ResponseWriter, status int, text string) {
	h.respond(w, status, map[string]any{"ok": false, "error": text})
}

// fail responds with an error of the client.
func (h *handler) fail(w http.ResponseWriter, r *http.Request, err error) {
	switch {
	case errors.Is(err, ErrNoSession), errors.Is(err, ErrDestroyed):
		h.refuse(w, http.StatusGone, err.Error())
	case errors.Is(err, ErrQueueFull):
		h.refuse(w, http.StatusTooManyRequests, err.Error())
	case errors.Is(err, ErrCursor), errors.Is(err, sandbox.ErrInvalid):
		h.refuse(w, http.StatusBadRequest, err.Error())
	default:
		h.opts.Logger.WarnContext(r.Context(), "the engine did not respond", "path", r.URL.Path, "error", err)
		w.Header().Set("Retry-After", "1")
		h.refuse(w, http.StatusServiceUnavailable, "the engine did not respond; try again")
	}
}
