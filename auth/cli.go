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
// The project is that of the options, or else:
//
//  1. the one that this directory or a parent is linked to, unless the options name
//     another team
//  2. "vercel-sandbox-default-project" in the team of the options, or else in the
//     user's default team, or else in a hobby team that the user owns; it is
//     created if the team does not have it
//
// and is remembered for the lifetime of the process. If there is no login,
// the error matches [ErrNoCredentials].
//
// The result is safe for concurrent use; for its goroutines and pauses see
// [Cache].
func CLI(opts *Options) Refresher {
	return newCLI(opts.orDefault())
}

type cli struct {
	opts  *Options
	host  *oidc.Host
	cache redact.Hidden[grantCache]

	mu    sync.Mutex
	scope oidc.Scope // zero until it is known
}

func newCLI(opts *Options) *cli {
	p := &cli{opts: opts, host: opts.host()}
	p.cache = redact.Hide(newGrantCache(grant{}, p.fetch, pausesAfter))
	return p
}

func (p *cli) Credentials(ctx context.Context) (Credentials, error) {
	return p.get(ctx, "")
}

func (p *cli) Refresh(ctx context.Context, stale Credentials) (Credentials, error) {
	return p.get(ctx, stale.Token)
}

func (p *cli) get(ctx context.Context, refused string) (Credentials, error) {
	c, err := p.cache().get(ctx, refused)
	if err != nil && ctx.Err() == nil {
		err = cliError(err)
	}
	return c, err
}

func (p *cli) fetch(ctx context.Context, old grant) (grant, error) {
	var ahead time.Duration
	if old.Token != "" {
		ahead = refreshAhead
	}
	login, err := p.host.Login(ctx, ahead, old.Token)
	if login.Token == "" {
		return grant{}, err
	}
	scope, scopeErr := p.findScope(ctx, login.Token)
	if scopeErr != nil {
		return grant{}, scopeErr
	}
	c := Credentials{Token: login.Token, TeamID: scope.TeamID, ProjectID: scope.ProjectID, login: true}
	return newGrant(c, login.Expiry), err
}

// findScope finds the project once. The cache calls it from one goroutine at a
// time.
func (p *cli) findScope(ctx context.Context, token string) (oidc.Scope, error) {
	p.mu.Lock()
	scope := p.scope
	p.mu.Unlock()
	if scope.ProjectID != "" {
		return scope, nil
	}
	scope = oidc.Scope{TeamID: p.opts.TeamID, ProjectID: p.opts.ProjectID}
	if scope.TeamID == "" || scope.ProjectID == "" {
		found, err := p.host.InferScope(ctx, token, scope.TeamID)
		if err != nil {
			return oidc.Scope{}, err
		}
		p.report(ctx, found)
		if scope.TeamID == "" {
			scope.TeamID = found.TeamID
		}
		if scope.ProjectID == "" {
			scope.ProjectID = found.ProjectID
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.scope = scope
	return scope, nil
}

func (p *cli) report(ctx context.Context, found oidc.Inferred) {
	if p.opts.Logger == nil {
		return
	}
	text := "inferred the project to use"
	if found.Created {
		text = "created the default project"
	}
	p.opts.Logger.LogAttrs(ctx, slog.LevelWarn, text,
		slog.String("team", found.TeamID), slog.String("project", found.ProjectID),
		slog.String("teamSlug", found.TeamSlug), slog.String("projectName", found.ProjectName))
}

// cliError adds ErrNoCredentials to errors that mean that there is no login.
func cliError(err error) error {
	if errors.Is(err, oidc.ErrNothing) {
		return fmt.Errorf("%w: %w", ErrNoCredentials, err)
	}
	return fmt.Errorf("sandbox: credentials: %w", err)
}
