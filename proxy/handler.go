package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"time"
)

// Meta says which sandbox a request comes from. All of it but Host is from
// a verified token.
type Meta struct {
	// Host is the host, with its port unless that is the default, at which the
	// request arrived here; not the one that the sandbox asked for, which is
	// in the request itself.
	Host string
	// TeamID is the team that owns the sandbox.
	TeamID string
	// ProjectID is the project that the sandbox belongs to.
	ProjectID string
	// SandboxID identifies the sandbox.
	SandboxID string
	// SandboxName is the name of the sandbox, unique in its project only. It is
	// the SandboxID when the token has no name.
	SandboxName string
	// Expiry is when the token expires.
	Expiry time.Time
}

type metaKey struct{}

// FromContext returns the Meta of a request that [Handler] has let through.
// It returns false for every other context.
func FromContext(ctx context.Context) (Meta, bool) {
	m, ok := ctx.Value(metaKey{}).(Meta)
	return m, ok
}

// Options are the choices that [Handler] leaves open. In the lists nil means that
// there is no such restriction, while a list that is empty lets nobody in.
type Options struct {
	// Invalid answers the requests that are refused; [ErrorFromContext] gives
	// it the reason. Nil answers 403 and nothing about the reason.
	//
	// When forwarding headers are missing, it sees the request as it came, with
	// a token if there was one. When they make no URL, it sees the request
	// without them. Otherwise it sees the request as the inner handler would
	// have, which nobody has vouched for.
	Invalid http.Handler

	// Logger gets a line at level Warn for every request that is refused, with
	// the reason, and without the token. Nil logs nothing.
	Logger *slog.Logger

	// Audience lists the forward URLs for which tokens are accepted, as they are
	// written in network policies, for instance https://proxy.example.com/hook.
	// With or without a slash at the end means both, and an empty one is for
	// nothing. With it, the address at which a request arrived is not compared
	// with the token, so that hosts and paths may be rewritten on the way. Nil takes the forward URL from the request:
	// see the package documentation for when that is not enough.
	Audience []string

	// TrustForwarded makes X-Forwarded-Proto and X-Forwarded-Host take
	// precedence over how and at which host the request arrived. Set it only
	// behind a reverse proxy that replaces both headers, whatever a client
	// sends. Without it they are not looked at.
	TrustForwarded bool

	// Issuers lists the token issuers that are accepted, for instance
	// https://oidc.vercel.com/my-team. It can only narrow what is accepted:
	// issuers elsewhere than at https://oidc.vercel.com never are. Nil accepts
	// all of those. Name the ones you serve: without it strangers can make the
	// handler fetch keys of issuers they have made up, and while they do so in
	// great numbers, sandboxes whose issuer's keys are not known yet may be refused.
	Issuers []string

	// Teams lists the IDs of teams whose sandboxes may come in.
	Teams []string
	// Projects lists the IDs of projects whose sandboxes may come in.
	Projects []string
	// Sandboxes lists the IDs of sandboxes that may come in. When Projects is
	// given too, sandbox names may be used as well; without it they are not
	// looked at, because everybody can give a sandbox any name.
	Sandboxes []string

	// MaxBody is the most bytes that a request's body may have. A request that
	// announces more is answered 413; of one that turns out to have more,
	// reading the body fails with [*http.MaxBytesError]. 0 means no limit.
	MaxBody int64

	// HTTPClient fetches the keys that tokens are checked with: see
	// [Keys.HTTPClient]. It is not used when Keys is given.
	HTTPClient *http.Client
	// Keys is where keys are fetched and remembered. Handlers of one process
	// may share it. Nil makes one of the handler's own.
	Keys *Keys
}

// Handler returns a handler for a forward URL. It verifies that a request comes
// from a sandbox, and calls next with the original request: its URL is absolute,
// with the original scheme, host, port, path and query; its Host is the original
// host; its body streams; the forwarding headers are gone. [FromContext] returns
// who is asking. The package documentation says what is verified.
//
// Everything else is for [Options.Invalid]. opts is copied; nil means the
// defaults. A nil next answers 404. The handler is safe for concurrent use.
//
// Every answer, of next and of Handler itself, is made private: Cache-Control
// gets the directive private and loses those for shared caches, the headers that
// steer CDNs are removed, and Vary names the forwarding headers. Otherwise
// a cache in front could give one sandbox's answer to another, or to strangers.
//
// Handler looks at the path of the request line, so it may be used behind
// [http.StripPrefix] and routers. A router sees the path of the forward URL with
// the original path appended to it: mount it on a subtree, and mind that
// [http.ServeMux] redirects paths that are not clean.
func Handler(next http.Handler, opts *Options) http.Handler {
	var o Options
	if opts != nil {
		o = *opts
	}
	h := &handler{
		next:      next,
		invalid:   o.Invalid,
		log:       o.Logger,
		keys:      o.Keys,
		trust:     o.TrustForwarded,
		maxBody:   o.MaxBody,
		issuers:   newSet(o.Issuers),
		teams:     newSet(o.Teams),
		projects:  newSet(o.Projects),
		sandboxes: newSet(o.Sandboxes),
	}
	if o.Audience != nil {
		h.audience = []string{}
		for _, a := range o.Audience {
			// An empty one is a variable that was not set, and no forward URL.
			if a = strings.TrimRight(a, "/"); a != "" {
				h.audience = append(h.audience, a)
			}
		}
	}
	if h.next == nil {
		h.next = http.NotFoundHandler()
	}
	if h.invalid == nil {
		h.invalid = http.HandlerFunc(forbidden)
	}
	if h.log == nil {
		h.log = slog.New(slog.DiscardHandler)
	}
	if h.keys == nil {
		h.keys = &Keys{HTTPClient: o.HTTPClient}
	}
	return h
}

// set is a list of what is allowed; nil allows everything.
type set map[string]bool

func newSet(list []string) set {
	if list == nil {
		return nil
	}
	s := make(set, len(list))
	for _, v := range list {
		s[v] = v != ""
	}
	return s
}

func (s set) allows(v string) bool { return s == nil || s[v] }

type handler struct {
	next, invalid                       http.Handler
	log                                 *slog.Logger
	keys                                *Keys
	audience                            []string // nil: from the request
	issuers, teams, projects, sandboxes set
	trust                               bool
	maxBody                             int64
}

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	private := &privateWriter{ResponseWriter: w}
	h.serve(private, r)
	private.seal() // for a handler that has written nothing
}

func (h *handler) serve(w http.ResponseWriter, r *http.Request) {
	if h.maxBody > 0 {
		if r.ContentLength > h.maxBody {
			http.Error(w, http.StatusText(http.StatusRequestEntityTooLarge), http.StatusRequestEntityTooLarge)
			return
		}
		if r.Body != nil && r.Body != http.NoBody {
			r = new(*r)
			r.Body = http.MaxBytesReader(w, r.Body, h.maxBody)
		}
	}
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
	inner.Form = nil // if it was parsed, then from another URL
	meta, err := h.verify(r, f)
	if err != nil {
		h.refuse(w, inner, err)
		return
	}
	h.next.ServeHTTP(w, inner.WithContext(context.WithValue(r.Context(), metaKey{}, meta)))
}

// verify decides whether a request comes from a sandbox that may come in.
func (h *handler) verify(r *http.Request, f forwarded) (Meta, error) {
	token, err := parseToken(f.token)
	if err != nil {
		return Meta{}, err
	}
	if err := checkIssuer(token.issuer); err != nil {
		return Meta{}, err
	}
	if !h.issuers.allows(token.issuer) {
		return Meta{}, fmt.Errorf("%w: %q is not in the list", ErrInvalidIssuer, token.issuer)
	}
	// Whom the lists keep out can go before anything is fetched for them. That
	// the rest of the claims are believed here does no harm: the signature over
	// the very same bytes is checked next.
	meta, metaErr := token.meta()
	if metaErr == nil {
		if err := h.allowed(meta); err != nil {
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
	at, err := receivedAt(r, h.trust)
	accepted := h.audience
	if accepted == nil {
		if err != nil {
			return Meta{}, fmt.Errorf("%w: %w", ErrInvalidToken, err)
		}
		accepted = []string{at.audience(f.path)}
	}
	if err := token.checkAudience(accepted); err != nil {
		return Meta{}, err
	}
	meta.Host = at.host
	return meta, metaErr
}

// allowed applies the lists of Options.
func (h *handler) allowed(m Meta) error {
	switch {
	case !h.teams.allows(m.TeamID):
		return fmt.Errorf("%w: team %q", ErrNotAllowed, clip(m.TeamID))
	case !h.projects.allows(m.ProjectID):
		return fmt.Errorf("%w: project %q", ErrNotAllowed, clip(m.ProjectID))
	case !h.sandboxes.allows(m.SandboxID) && (h.projects == nil || !h.sandboxes.allows(m.SandboxName)):
		return fmt.Errorf("%w: sandbox %q", ErrNotAllowed, clip(m.SandboxID))
	}
	return nil
}

func (h *handler) refuse(w http.ResponseWriter, r *http.Request, err error) {
	h.log.WarnContext(r.Context(), "sandbox proxy refused a request",
		"error", err, "method", clip(r.Method), "remote", r.RemoteAddr)
	h.invalid.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), errorKey{}, err)))
}

// forbidden is the answer to an invalid request when there is no handler for it.
func forbidden(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(http.StatusForbidden)
	_, _ = io.WriteString(w, http.StatusText(http.StatusForbidden))
}
