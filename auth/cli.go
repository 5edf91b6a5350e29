package auth

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/go-vercel/sandbox/internal/oidc"
	"github.com/go-vercel/sandbox/internal/redact"
)

// CLI returns a provider that uses the login of the Vercel CLI (`vercel
// login`). The login is refreshed five minutes before it expires and written
// back to the CLI's file, atomically and under a lock that other programs using
// this package respect. A refresh that fails leaves the file unchanged.
//
// The project is that of the options, or otherwise:
//
//  1. the one that this directory or a parent is linked to, unless the options name
//     another team
//  2. "vercel-sandbox-default-project" in the team of the options, or otherwise in the
//     user's default team, or otherwise in a hobby team that the user owns; it is
//     created if it does not exist, unless NoCreate is set
//
// The provider finds the project once. If there is no login, the error matches [ErrNoCredentials].
//
// The result is safe for concurrent use; for its goroutines and pauses see
// [Cache].
func CLI(opts *Options) Refresher {
	return newCLI(opts.orDefault())
}

func newCLI(opts *Options) *projectProvider {
	host := opts.host()
	return newProjectProvider(opts, host, tokenSource{
		login: func(ctx context.Context, ahead time.Duration, old string) (oidc.Login, error) {
			return host.Login(ctx, ahead, old)
		},
		name: "the CLI's login", fromLogin: true,
	})
}

// tokenSource is the source of a token without a project.
type tokenSource struct {
	// login returns a token that is valid for longer than ahead. old is a rejected token,
	// which it must not return.
	login     func(ctx context.Context, ahead time.Duration, old string) (oidc.Login, error)
	name      string // in errors
	fromLogin bool
	// base returns the address of the API that the token is for; nil for Vercel's.
	base func() (string, error)
}

// projectProvider provides a token and finds the project for it.
type projectProvider struct {
	opts   *Options
	host   *oidc.Host
	source tokenSource
	cache  redact.Hidden[credentialCache]

	mu    sync.Mutex
	scope oidc.Scope // zero before it is found
}

func newProjectProvider(opts *Options, host *oidc.Host, s tokenSource) *projectProvider {
	p := &projectProvider{opts: opts, host: host, source: s}
	p.cache = redact.Hide(newCredentialCache(cachedCredentials{}, p.fetch, isRemoteError))
	return p
}

func (p *projectProvider) Credentials(ctx context.Context) (Credentials, error) {
	return p.get(ctx, "")
}

func (p *projectProvider) Refresh(ctx context.Context, stale Credentials) (Credentials, error) {
	return p.get(ctx, stale.Token)
}

func (p *projectProvider) get(ctx context.Context, refused string) (Credentials, error) {
	c, err := p.cache().get(ctx, refused)
	if err != nil && ctx.Err() == nil {
		err = wrapLoginError(err)
	}
	return c, err
}

func (p *projectProvider) fetch(ctx context.Context, old cachedCredentials) (cachedCredentials, error) {
	var ahead time.Duration
	if old.Token != "" {
		ahead = refreshAhead
	}
	login, err := p.source.login(ctx, ahead, old.Token)
	if login.Token == "" {
		return cachedCredentials{}, err
	}
	scope, scopeErr := p.findScope(ctx, login.Token)
	if scopeErr != nil {
		return cachedCredentials{}, scopeErr
	}
	c := Credentials{Token: login.Token, TeamID: scope.TeamID, ProjectID: scope.ProjectID, fromLogin: p.source.fromLogin}
	return newCachedCredentials(c, login.Expiry), err
}

// findScope finds the project once. The cache calls it from one goroutine at a
// time.
func (p *projectProvider) findScope(ctx context.Context, token string) (oidc.Scope, error) {
	p.mu.Lock()
	scope := p.scope
	p.mu.Unlock()
	if scope.ProjectID != "" {
		return scope, nil
	}
	given := oidc.Scope{TeamID: p.opts.TeamID, ProjectID: p.opts.ProjectID}
	inferred, err := p.host.InferScope(ctx, oidc.Search{
		Token: token, Given: given, NoCreate: p.opts.NoCreate, Names: p.opts.Logger != nil || p.source.fromLogin,
		Base: p.source.base, Doing: "finding a project for " + p.source.name,
	})
	if errors.Is(err, oidc.ErrNoProject) {
		err = fmt.Errorf("%w: %w", ErrNoProject, err)
	}
	if err != nil {
		return oidc.Scope{}, err
	}
	if inferred.Scope != given {
		p.report(ctx, inferred)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.scope = inferred.Scope
	return p.scope, nil
}

func (p *projectProvider) report(ctx context.Context, inferred oidc.Inferred) {
	if p.opts.Logger == nil {
		return
	}
	text := "inferred the project to use"
	if inferred.Created {
		text = "created the default project"
	}
	p.opts.Logger.LogAttrs(ctx, slog.LevelWarn, text,
		slog.String("team", inferred.TeamID), slog.String("project", inferred.ProjectID),
		slog.String("teamSlug", inferred.TeamSlug), slog.String("projectName", inferred.ProjectName))
}

// wrapLoginError adds ErrNoCredentials to errors that mean that there is no login.
func wrapLoginError(err error) error {
	_, malformed := errors.AsType[malformedError](err)
	switch {
	case malformed, errors.Is(err, ErrNoCredentials), errors.Is(err, ErrNoProject):
		return err
	case errors.Is(err, oidc.ErrNothing):
		return fmt.Errorf("%w: %w", ErrNoCredentials, err)
	}
	return fmt.Errorf("sandbox: credentials: %w", err)
}
