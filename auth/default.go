package auth

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"

	"github.com/go-vercel/sandbox/internal/oidc"
)

// Default returns a provider that finds credentials where the official tools
// find them. In order:
//
//  1. VERCEL_TOKEN with VERCEL_TEAM_ID and VERCEL_PROJECT_ID ([Env])
//  2. the token of the request that the context carries ([ContextWithToken])
//  3. VERCEL_OIDC_TOKEN
//  4. a token for the linked project, obtained with the login of the Vercel CLI
//     (2 to 4 are [OIDC], which keeps its token fresh)
//  5. at a terminal, outside of CI, the login of the Vercel CLI with an inferred
//     project ([CLI])
//
// The three variables come first because only the user sets all of them. Some
// are set for other reasons: VERCEL_TOKEN alone, or together with
// VERCEL_PROJECT_ID, is how the CLI is run in CI. In that case the token of the
// request or VERCEL_OIDC_TOKEN is used if there is one, and otherwise the error
// names what is missing. VERCEL_TOKEN and VERCEL_TEAM_ID without
// VERCEL_PROJECT_ID is always an error.
//
// Default never asks anyone to log in; add [Device] after it in a [Chain] for
// that. If no credentials are found, the error is an *[OIDCError], which says
// what to do and matches [ErrNoCredentials].
func Default(opts *Options) Refresher {
	o := opts.orDefault()
	return &defaults{opts: o, oidc: newOIDC(o), cli: newCLI(o)}
}

type defaults struct {
	opts *Options
	oidc *oidcTokens
	cli  *cli
	// oidcOnly is set once OIDC has returned credentials. From then on those of
	// the CLI, which may be for another project, are not used.
	oidcOnly atomic.Bool
	// cliFirst is set once the CLI's login was used for lack of an OIDC token.
	// As long as there is none, a linked project need not be searched each
	// time.
	cliFirst atomic.Bool
}

func (p *defaults) Credentials(ctx context.Context) (Credentials, error) {
	return p.get(ctx, "")
}

func (p *defaults) Refresh(ctx context.Context, stale Credentials) (Credentials, error) {
	return p.get(ctx, stale.Token)
}

func (p *defaults) get(ctx context.Context, refused string) (Credentials, error) {
	c, err := fromEnv(p.opts.env)
	if err == nil && c.Token == refused {
		return Credentials{}, errors.New("sandbox: credentials: the API rejected " + envToken + ", which can't be refreshed")
	}
	if err == nil || !errors.Is(err, ErrNoCredentials) && !p.yields(ctx) {
		return c, err
	}
	if p.cliFirst.Load() && !p.tokenGiven(ctx) {
		return p.cli.get(ctx, refused)
	}
	c, err = p.oidc.get(ctx, refused)
	if err == nil {
		p.oidcOnly.Store(true)
		return c, nil
	}
	if p.oidcOnly.Load() || !fallsToCLI(err) || !p.opts.interactive() {
		return c, err
	}
	c, cliErr := p.cli.get(ctx, refused)
	if errors.Is(cliErr, ErrNoCredentials) {
		return c, err
	}
	if cliErr == nil && !p.tokenGiven(ctx) {
		p.cliFirst.Store(true)
	}
	return c, cliErr
}

// tokenGiven reports whether there is an OIDC token, valid or not.
func (p *defaults) tokenGiven(ctx context.Context) bool {
	return tokenFromContext(ctx) != "" || p.opts.env(envOIDCToken) != ""
}

// yields reports whether incomplete variables are ignored in favor of an OIDC
// token.
func (p *defaults) yields(ctx context.Context) bool {
	deliberate := p.opts.env(envToken) != "" && p.opts.env(envTeamID) != ""
	return !deliberate && p.tokenGiven(ctx)
}

// fallsToCLI reports whether the CLI's login is tried after an error of OIDC:
// there was no token, or the server issues none for the project to this login.
func fallsToCLI(err error) bool {
	if errors.Is(err, ErrNoCredentials) {
		return true
	}
	refusal, ok := errors.AsType[*oidc.StatusError](err)
	return ok && refusal.Status >= http.StatusBadRequest && refusal.Status < http.StatusInternalServerError
}
