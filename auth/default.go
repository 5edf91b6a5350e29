package auth

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"sync/atomic"

	"github.com/go-vercel/sandbox/internal/oidc"
	"github.com/go-vercel/sandbox/internal/redact"
)

// Default returns a provider that finds credentials where the official tools
// find them. In order:
//
//  1. VERCEL_AUTH_TOKEN, the token that `sandbox` reads, with VERCEL_TEAM_ID and
//     VERCEL_PROJECT_ID, or otherwise with the project that [Token] finds
//  2. VERCEL_TOKEN with VERCEL_TEAM_ID and VERCEL_PROJECT_ID
//  3. the token of the request that the context carries ([ContextWithToken])
//  4. the file that VERCEL_OIDC_TOKEN_FILE names, or else VERCEL_OIDC_TOKEN
//  5. VERCEL_TOKEN with the other variables that are set, and the project that this
//     directory or a parent is linked to (.vercel/project.json)
//  6. a token for the linked project, obtained with the login of the Vercel CLI
//     (3, 4 and 6 are [OIDC], which keeps its token fresh)
//  7. at a terminal, outside of CI, the login of the Vercel CLI with an inferred
//     project ([CLI])
//
// The three variables of step 2 come early because only a user sets all of them. Some of them may
// be set for another reason: in CI the CLI runs with VERCEL_TOKEN alone, or with
// VERCEL_PROJECT_ID. Default neither searches for a project nor creates one for such a token. If
// no link completes it, the error is a *[MissingError], which names what is missing and why the
// link does not help. Use [Token] to find the project. VERCEL_TOKEN with VERCEL_TEAM_ID but without
// VERCEL_PROJECT_ID takes precedence over an OIDC token.
//
// Default never asks a user to log in. For that, add the Login of package device after it in a
// [Chain]. If no credentials are found, the error is an *[OIDCError], which says what to do and
// matches [ErrNoCredentials].
func Default(opts *Options) Refresher {
	o := opts.orDefault()
	return &defaultProvider{opts: o, oidc: newOIDC(o), cli: newCLI(o)}
}

type defaultProvider struct {
	opts *Options
	oidc *oidcTokens
	cli  *projectProvider
	// env is the provider of the environment's access token; nil before its first use.
	env atomic.Pointer[envProvider]
	// oidcOnly is set once OIDC has returned credentials. From then on the CLI's
	// credentials are not used, because they may be for another project.
	oidcOnly atomic.Bool
	// cliFirst is set once the CLI's login was used because there was no OIDC token.
	// As long as there is none, OIDC is not tried again.
	cliFirst atomic.Bool
}

// envProvider is the provider of an access token of the environment.
type envProvider struct {
	token redact.Hidden[oidc.EnvToken]
	*projectProvider
}

func (p *defaultProvider) Credentials(ctx context.Context) (Credentials, error) {
	return p.get(ctx, "")
}

func (p *defaultProvider) Refresh(ctx context.Context, stale Credentials) (Credentials, error) {
	return p.get(ctx, stale.Token)
}

// fromEnv returns the provider of the environment's access token. If there is
// none, its error matches ErrNoCredentials.
func (p *defaultProvider) fromEnv(ctx context.Context) (*projectProvider, error) {
	t := oidc.TokenOfEnv(p.opts.env)
	if t.Token == "" && t.Scope.TeamID == "" {
		return nil, ErrNoCredentials
	}
	missing := missingVariables(t)
	// Some variables may be set for other tools. Then an OIDC token takes precedence.
	deliberate := t.Token != "" && (t.Scope.TeamID != "" || t.Searches)
	if missing != nil && !deliberate && p.hasOIDCToken(ctx) {
		return nil, ErrNoCredentials
	}
	if t.Token == "" {
		return nil, &MissingError{Missing: missing}
	}
	// Keep the project that was found first.
	if e := p.env.Load(); e != nil && *e.token() == t {
		return e.projectProvider, nil
	}
	scope := t.Scope
	if scope.TeamID == "" || scope.TeamID == p.opts.TeamID {
		scope = oidc.Scope{TeamID: p.opts.TeamID, ProjectID: cmp.Or(scope.ProjectID, p.opts.ProjectID)}
	}
	if !t.Searches {
		var err error
		if scope, err = p.cli.host.Linked(scope); err != nil {
			return nil, &MissingError{Missing: missing, Link: err}
		}
	}
	o := *p.opts
	o.TeamID, o.ProjectID = scope.TeamID, scope.ProjectID
	e := &envProvider{redact.Hide(&t), newToken(t.Token, t.Variable, &o)}
	p.env.Store(e)
	return e.projectProvider, nil
}

func (p *defaultProvider) get(ctx context.Context, refused string) (Credentials, error) {
	env, err := p.fromEnv(ctx)
	if err == nil {
		return env.get(ctx, refused)
	}
	if !errors.Is(err, ErrNoCredentials) {
		return Credentials{}, err
	}
	if p.cliFirst.Load() && !p.hasOIDCToken(ctx) {
		return p.cli.get(ctx, refused)
	}
	c, err := p.oidc.get(ctx, refused)
	if err == nil {
		p.oidcOnly.Store(true)
		return c, nil
	}
	if p.oidcOnly.Load() || !shouldTryCLI(err) || !p.opts.interactive() {
		return c, err
	}
	c, cliErr := p.cli.get(ctx, refused)
	if errors.Is(cliErr, ErrNoCredentials) {
		return c, err
	}
	if cliErr == nil && !p.hasOIDCToken(ctx) {
		p.cliFirst.Store(true)
	}
	return c, cliErr
}

// hasOIDCToken reports whether the context or the environment has an OIDC token, valid or not.
func (p *defaultProvider) hasOIDCToken(ctx context.Context) bool {
	return tokenFromContext(ctx) != "" || p.opts.env(envOIDCFile) != "" || p.opts.env(envOIDCToken) != ""
}

// shouldTryCLI reports whether to try the CLI's login after an error of OIDC. That
// is so if there was no token, or if the server refuses this login a token for the
// project.
func shouldTryCLI(err error) bool {
	if errors.Is(err, ErrNoCredentials) {
		return true
	}
	refusal, ok := errors.AsType[*oidc.StatusError](err)
	return ok && refusal.Status >= http.StatusBadRequest && refusal.Status < http.StatusInternalServerError
}
