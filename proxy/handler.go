package proxy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"time"
)

// Meta identifies the sandbox that a request comes from. All fields except Host
// are from a verified token.
type Meta struct {
	// Host is the host at which the request arrived, with its port unless that
	// is the default. It is not the host that the sandbox asked for, which is
	// in the request itself.
	Host string
	// TeamID is the team that owns the sandbox.
	TeamID string
	// ProjectID is the project that the sandbox belongs to.
	ProjectID string
	// SandboxID identifies the sandbox.
	SandboxID string
	// SandboxName is the name of the sandbox, which is unique only within its
	// project. It is the SandboxID if the token has no name.
	SandboxName string
	// Expiry is when the token expires.
	Expiry time.Time
}

type metaKey struct{}

// FromContext returns the Meta of a request that [Handler] has accepted. It
// reports false for any other context.
func FromContext(ctx context.Context) (Meta, bool) {
	m, ok := ctx.Value(metaKey{}).(Meta)
	return m, ok
}

// Options are the options of [Handler]. A nil list means no restriction, while an
// empty list allows none.
type Options struct {
	// Invalid handles the requests that are refused; [ErrorFromContext] returns
	// the reason. Nil responds with status 403 and without the reason.
	//
	// If forwarding headers are missing, Invalid receives the original request,
	// including a token if there was one. If they do not form a URL, it
	// receives the request without them. Otherwise it receives the request that
	// the inner handler would have received, which is not verified.
	Invalid http.Handler

	// Logger receives a line at level Warn for every refused request, with the
	// reason and without the token. Nil disables logging.
	Logger *slog.Logger

	// Audience lists the forward URLs whose tokens are accepted, as written in
	// network policies, for example https://proxy.example.com/hook. A trailing
	// slash is ignored, and so is an empty string. If set, the address at which
	// a request arrived is not compared with the token, so that hosts and paths
	// may be rewritten on the way. Nil derives the forward URL from the
	// request: see the package documentation for when that is not enough.
	Audience []string

	// TrustForwarded makes X-Forwarded-Proto and X-Forwarded-Host take
	// precedence over the scheme and host at which the request arrived. Set it
	// only behind a reverse proxy that replaces both headers, whatever a client
	// sends. By default they are ignored.
	TrustForwarded bool

	// Issuers lists the token issuers that are accepted, for example
	// https://oidc.vercel.com/my-team. Issuers outside of https://oidc.vercel.com
	// are never accepted. Nil accepts all issuers there. Set it: otherwise
	// strangers can make the handler fetch keys of invented issuers. While they do
	// that in great numbers, the handler may refuse sandboxes of an issuer whose
	// keys it has not fetched yet.
	Issuers []string

	// Teams lists the IDs of teams whose sandboxes are accepted.
	Teams []string
	// Projects lists the IDs of projects whose sandboxes are accepted.
	Projects []string
	// Sandboxes lists the IDs of sandboxes that are accepted. If Projects is
	// set too, it may also contain names of sandboxes; otherwise names are
	// ignored, because anyone can give a sandbox any name.
	Sandboxes []string

	// HTTPClient fetches the keys that tokens are verified with: see
	// [Keys.HTTPClient]. It is ignored if Keys is set.
	HTTPClient *http.Client
	// Keys fetches and caches keys. Handlers of one process may share it. If it
	// is nil, the handler uses its own.
	Keys *Keys
}

// Handler returns a handler for a forward URL. It verifies that a request comes
// from a sandbox, and calls next with the original request: its URL is
// absolute, with the original scheme, host, port, path and query; its Host is
// the original host; its body streams; the forwarding headers are removed.
// [FromContext] identifies the sandbox. The package documentation describes
// what is verified.
//
// All other requests go to [Options.Invalid]. opts is copied; nil means the
// defaults. A nil next responds with status 404. The handler is safe for
// concurrent use.
//
// Every response, of next and of Handler itself, is made private: Cache-Control
// gets the directive private and loses those for shared caches, headers that
// control CDNs are removed, and Vary names the forwarding headers. Otherwise a
// cache in front could give one sandbox's response to another, or to strangers.
//
// Handler uses the path of the request line, so it may be used behind
// [http.StripPrefix] and routers. A router sees the path of the forward URL
// with the original path appended: mount it on a subtree, and note that
// [http.ServeMux] redirects paths that are not clean.
//
// To limit the size of requests, wrap the handler in [http.MaxBytesHandler]. A
// [Forwarder] responds to larger ones with status 413.
func Handler(next http.Handler, opts *Options) http.Handler {
	o := *cmp.Or(opts, new(Options))
	h := &handler{
		next:           next,
		invalid:        o.Invalid,
		log:            o.Logger,
		keys:           o.Keys,
		trustForwarded: o.TrustForwarded,
		issuers:        newAllowList(o.Issuers),
		teams:          newAllowList(o.Teams),
		projects:       newAllowList(o.Projects),
		sandboxes:      newAllowList(o.Sandboxes),
	}
	if o.Audience != nil {
		h.audience = []string{}
		for _, a := range o.Audience {
			// An empty string comes from a variable that was not set.
			if a = strings.TrimRight(a, "/"); a != "" {
				h.audience = append(h.audience, a)
			}
		}
	}
	h.next = cmp.Or(h.next, http.NotFoundHandler())
	h.invalid = cmp.Or[http.Handler](h.invalid, http.HandlerFunc(serveForbidden))
	h.log = cmp.Or(h.log, slog.New(slog.DiscardHandler))
	h.keys = cmp.Or(h.keys, &Keys{HTTPClient: o.HTTPClient})
	return h
}

// allowList is a set of allowed values; nil allows everything.
type allowList map[string]bool

func newAllowList(list []string) allowList {
	if list == nil {
		return nil
	}
	s := make(allowList, len(list))
	for _, v := range list {
		s[v] = true
	}
	return s
}

func (s allowList) allows(v string) bool { return s == nil || s[v] }

type handler struct {
	next, invalid                       http.Handler
	log                                 *slog.Logger
	keys                                *Keys
	audience                            []string // nil: derive it from the request
	issuers, teams, projects, sandboxes allowList
	trustForwarded                      bool
}

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	private := &privateWriter{ResponseWriter: w}
	h.serve(private, r)
	private.markPrivate() // in case the handler has written nothing
}

func (h *handler) serve(w http.ResponseWriter, r *http.Request) {
	f, err := readForwarded(r.Header)
	if errors.Is(err, ErrMissingHeaders) {
		h.refuse(w, r, err)
		return
	}
	inner := new(*r)
	inner.Header = withoutForwarding(r.Header)
	if err != nil {
		h.refuse(w, inner, err)
		return
	}
	original, err := f.url()
	if err != nil {
		h.refuse(w, inner, err)
		return
	}
	inner.URL = original
	inner.Host, _ = parseHost(f.host)
	inner.RequestURI = original.RequestURI()
	inner.Form = nil // a middleware may have parsed it, from the outer URL
	meta, err := h.verify(r, f)
	if err != nil {
		h.refuse(w, inner, err)
		return
	}
	h.next.ServeHTTP(w, inner.WithContext(context.WithValue(r.Context(), metaKey{}, meta)))
}

// verify decides whether a request comes from a sandbox that is allowed.
func (h *handler) verify(r *http.Request, f forwarded) (Meta, error) {
	token, err := parseToken(f.token)
	if err != nil {
		return Meta{}, err
	}
	if err := checkIssuer(token.issuer); err != nil {
		return Meta{}, err
	}
	if !h.issuers.allows(token.issuer) {
		return Meta{}, fmt.Errorf("%w: %q is not in Options.Issuers", ErrInvalidIssuer, token.issuer)
	}
	// Refuse requests that the lists exclude before fetching anything for them.
	// The claims are not verified yet, but the signature over the same bytes is
	// checked next.
	meta, metaErr := token.meta()
	if metaErr == nil {
		if err := h.checkAllowed(meta); err != nil {
			return Meta{}, err
		}
	}
	key, issuer, err := h.keys.find(r.Context(), r.RemoteAddr, token.issuer, token.keyID)
	if err != nil {
		return Meta{}, err
	}
	if err := token.checkSignature(key); err != nil {
		return Meta{}, err
	}
	issuer.proven.Store(true)
	if meta.Expiry, err = token.checkTime(time.Now()); err != nil {
		return Meta{}, err
	}
	at, err := receivedAt(r, h.trustForwarded)
	accepted := h.audience
	if accepted == nil {
		if err != nil {
			return Meta{}, fmt.Errorf("%w: its audience can't be checked: %w", ErrInvalidToken, err)
		}
		accepted = []string{at.audience(f.path)}
	}
	if err := token.checkAudience(accepted); err != nil {
		return Meta{}, err
	}
	meta.Host = at.host
	return meta, metaErr
}

// checkAllowed applies the lists of Options.
func (h *handler) checkAllowed(m Meta) error {
	switch {
	case !h.teams.allows(m.TeamID):
		return fmt.Errorf("%w: its team %q is not in Options.Teams", ErrNotAllowed, truncate(m.TeamID))
	case !h.projects.allows(m.ProjectID):
		return fmt.Errorf("%w: its project %q is not in Options.Projects", ErrNotAllowed, truncate(m.ProjectID))
	case !h.sandboxes.allows(m.SandboxID) && (h.projects == nil || !h.sandboxes.allows(m.SandboxName)):
		hint := ""
		if h.sandboxes.allows(m.SandboxName) {
			hint = "; its name is, but names count only if Options.Projects is set"
		}
		return fmt.Errorf("%w: its ID %q is not in Options.Sandboxes%s", ErrNotAllowed, truncate(m.SandboxID), hint)
	}
	return nil
}

func (h *handler) refuse(w http.ResponseWriter, r *http.Request, err error) {
	h.log.WarnContext(r.Context(), "sandbox proxy refused a request",
		"error", err, "method", truncate(r.Method), "remote", r.RemoteAddr)
	h.invalid.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), errorKey{}, err)))
}

// serveForbidden is the default response to an invalid request.
func serveForbidden(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(http.StatusForbidden)
	_, _ = io.WriteString(w, http.StatusText(http.StatusForbidden))
}
