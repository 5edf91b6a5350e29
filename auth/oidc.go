package auth

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-vercel/sandbox/internal/oidc"
	"github.com/go-vercel/sandbox/internal/redact"
)

// OIDC returns a provider of an OIDC token of a project, with the token's team and project. It
// uses, in order:
//
//  1. the token that the context carries ([ContextWithToken])
//  2. the file that VERCEL_OIDC_TOKEN_FILE names, which is read at every call. An unreadable or
//     empty file is an error.
//  3. VERCEL_OIDC_TOKEN
//  4. for the project that this directory or a parent is linked to
//     (.vercel/project.json), a token stored by the Vercel tools, or a new one
//     obtained with the login of the Vercel CLI. If the login is in the system's
//     keyring or bound to this device, OIDC runs the program vercel.
//
// Five minutes before a token expires, OIDC replaces it by one for the same team and project, from
// the store or with the CLI's login. If that fails, the token is used until it expires. If a token
// of the environment or the file has expired before its first use, OIDC replaces it by one for the
// linked project, or for the token's own project if none is linked. A changed token of the
// environment or the file is used from the next call. A token of the context is never replaced,
// and is ignored if it has expired.
//
// Tokens are stored where the official tools store them, to share them, and never in the
// environment. Errors are of type *[OIDCError], and match [ErrNoCredentials] if there was no token.
//
// The result is safe for concurrent use; for its goroutines and pauses see
// [Cache].
func OIDC(opts *Options) Refresher {
	return newOIDC(opts.orDefault())
}

type oidcTokens struct {
	opts  *Options
	host  *oidc.Host
	state redact.Hidden[oidcState]
}

type oidcState struct {
	mu sync.Mutex
	// source is the environment's token for which cache was created.
	source string
	cache  *credentialCache
}

func newOIDC(opts *Options) *oidcTokens {
	return &oidcTokens{opts: opts, host: opts.host(), state: redact.Hide(&oidcState{})}
}

func (p *oidcTokens) Credentials(ctx context.Context) (Credentials, error) {
	return p.get(ctx, "")
}

func (p *oidcTokens) Refresh(ctx context.Context, stale Credentials) (Credentials, error) {
	return p.get(ctx, stale.Token)
}

func (p *oidcTokens) get(ctx context.Context, refused string) (Credentials, error) {
	if token := tokenFromContext(ctx); token != "" && token != refused {
		claims, err := oidc.ParseClaims(token)
		if err != nil {
			return Credentials{}, p.oidcError(fmt.Errorf("the token of the request: %w", err))
		}
		if !oidc.Expired(claims.Expiry, time.Now()) {
			return oidcCredentials(token, claims).Credentials, nil
		}
	}
	name, token, err := p.envToken()
	var cache *credentialCache
	if err == nil {
		cache, err = p.cacheFor(token)
	}
	if err != nil {
		return Credentials{}, p.oidcError(fmt.Errorf("%s: %w", name, err))
	}
	c, err := cache.get(ctx, refused)
	if err != nil && ctx.Err() == nil {
		err = p.oidcError(err)
	}
	return c, err
}

// envToken returns the token of the environment, which may be empty, and the name of its
// variable.
func (p *oidcTokens) envToken() (name, token string, err error) {
	if file := p.opts.env(envOIDCFile); file != "" {
		token, err = oidc.ReadTokenFile(file)
		return envOIDCFile, token, err
	}
	return envOIDCToken, p.opts.env(envOIDCToken), nil
}

// cacheFor returns the cache for a token of the environment.
func (p *oidcTokens) cacheFor(source string) (*credentialCache, error) {
	s := p.state()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cache != nil && s.source == source {
		return s.cache, nil
	}
	var seed cachedCredentials
	if source != "" {
		claims, err := oidc.ParseClaims(source)
		if err != nil {
			return nil, err
		}
		seed = oidcCredentials(source, claims)
	}
	// Use only the project of an expired token.
	var hint oidc.Scope
	if seed.Token != "" && !seed.usable(time.Now()) {
		hint, seed = oidc.Scope{TeamID: seed.TeamID, ProjectID: seed.ProjectID}, cachedCredentials{}
	}
	fetch := func(ctx context.Context, old cachedCredentials) (cachedCredentials, error) {
		return p.fetch(ctx, old, hint)
	}
	s.source, s.cache = source, newCredentialCache(seed, fetch, isRemoteError)
	return s.cache, nil
}

// isRemoteError reports whether a server caused an error of a fetch. A pause follows only then: an
// error of a file may be corrected at any time.
func isRemoteError(err error) bool {
	_, remote := errors.AsType[*oidc.RemoteError](err)
	return remote || errors.Is(err, context.DeadlineExceeded)
}

func (p *oidcTokens) fetch(ctx context.Context, old cachedCredentials, hint oidc.Scope) (cachedCredentials, error) {
	scope := oidc.Scope{TeamID: old.TeamID, ProjectID: old.ProjectID}
	var ahead time.Duration
	if old.Token != "" {
		ahead = refreshAhead
	} else {
		var err error
		if scope, err = p.scope(hint); err != nil {
			return cachedCredentials{}, err
		}
	}
	token, err := p.host.ProjectToken(ctx, scope, ahead, old.Token)
	if token.Token == "" {
		return cachedCredentials{}, err
	}
	got := oidcCredentials(token.Token, token.Claims)
	got.fromLogin = true
	return got, err
}

// scope returns the project for the first token.
func (p *oidcTokens) scope(hint oidc.Scope) (oidc.Scope, error) {
	scope := oidc.Scope{TeamID: p.opts.TeamID, ProjectID: p.opts.ProjectID}
	if scope.TeamID != "" && scope.ProjectID != "" {
		return scope, nil
	}
	link, err := p.host.Link()
	if errors.Is(err, oidc.ErrNothing) && hint.ProjectID != "" {
		link, err = hint, nil
	}
	if err != nil && (scope.ProjectID == "" || !errors.Is(err, oidc.ErrNothing)) {
		return oidc.Scope{}, err
	}
	scope.TeamID = cmp.Or(scope.TeamID, link.TeamID)
	scope.ProjectID = cmp.Or(scope.ProjectID, link.ProjectID)
	return scope, nil
}

// oidcError wraps err in an OIDCError, which says what to do.
func (p *oidcTokens) oidcError(err error) error {
	if errors.Is(err, oidc.ErrNothing) {
		state := envOIDCToken + " is not set"
		if name, token, _ := p.envToken(); token != "" {
			state = "the token of " + name + " has expired"
		}
		err = fmt.Errorf("%w: %s, and %w", ErrNoCredentials, state, err)
	}
	return &OIDCError{OnVercel: p.opts.env(envOnVercel) != "", Err: err}
}

func oidcCredentials(token string, claims oidc.Claims) cachedCredentials {
	return newCachedCredentials(Credentials{Token: token, TeamID: claims.TeamID, ProjectID: claims.ProjectID}, claims.Expiry)
}
