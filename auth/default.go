package auth

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"

	"github.com/go-vercel/sandbox/internal/oidc"
)

// Default finds credentials where the official tools find them. In order:
//
//  1. VERCEL_TOKEN with VERCEL_TEAM_ID and VERCEL_PROJECT_ID ([Env])
//  2. the token of the request that the context carries ([ContextWithToken])
//  3. VERCEL_OIDC_TOKEN
//  4. a token for the linked project, through the login of the Vercel CLI
//     (2 to 4 are [OIDC], which keeps its token fresh)
//  5. at a terminal, outside of CI, the login of the Vercel CLI with a project
//     inferred ([CLI])
//
// The three variables come first because nobody but the user sets all of them.
// Some of them are set for other reasons: VERCEL_TOKEN alone, or together with
// VERCEL_PROJECT_ID, is how the CLI is run in CI. Then the token of the request
// or VERCEL_OIDC_TOKEN, when there is one, is used, and otherwise the error
// names what is missing. VERCEL_TOKEN and VERCEL_TEAM_ID without
// VERCEL_PROJECT_ID is always an error.
//
// Nobody is asked to log in; [Device] does that, behind this in a [Chain]. With
// nothing found, the error is an *[OIDCError] that says what to do and matches
// [ErrNoCredentials].
func Default(opts *Options) Refresher {
	o := opts.orDefault()
	return &defaults{opts: o, oidc: newOIDC(o), cli: newCLI(o)}
}

type defaults struct {
	opts *Options
	oidc *oidcTokens
	cli  *cli
	// oidcOnly tells that OIDC gave credentials once. From then on the CLI's,
	// which may be for another project, are out of the question.
	oidcOnly atomic.Bool
	// cliFirst tells that the CLI's login served for want of an OIDC token. While
	// none is given, there is no need to look for a linked project each time.
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
		return Credentials{}, errors.New("sandbox: credentials: the API refused " + envToken + ", which can't be refreshed")
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

// tokenGiven tells whether there is an OIDC token, be it a good one or not.
func (p *defaults) tokenGiven(ctx context.Context) bool {
	return tokenFromContext(ctx) != "" || p.opts.env(envOIDCToken) != ""
}

// yields tells whether incomplete variables give way to an OIDC token.
func (p *defaults) yields(ctx context.Context) bool {
	deliberate := p.opts.env(envToken) != "" && p.opts.env(envTeamID) != ""
	return !deliberate && p.tokenGiven(ctx)
}

// fallsToCLI tells whether an error of OIDC leaves the CLI's login to try:
// nothing was there, or the server gives this login no token for the project.
func fallsToCLI(err error) bool {
	if errors.Is(err, ErrNoCredentials) {
		return true
	}
	refusal, ok := errors.AsType[*oidc.StatusError](err)
	return ok && refusal.Status >= http.StatusBadRequest && refusal.Status < http.StatusInternalServerError
}
