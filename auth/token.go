package auth

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/go-vercel/sandbox/internal/oidc"
	"github.com/go-vercel/sandbox/internal/redact"
)

// Token returns a provider of a given access token or OIDC token, and finds the project for it.
// The token is never refreshed.
//
// The team and the project are those of the options, or otherwise:
//
//  1. those in the claims of the token, if it is an OIDC token
//  2. those that this directory or a parent is linked to (.vercel/project.json),
//     unless the options name another team
//  3. the default project, as for [CLI]
//
// The provider finds them once. Only the third needs requests: two or more, before the client's
// first. With NoCreate these requests change nothing.
//
// If token is empty, the error matches [ErrNoCredentials]. The result is safe
// for concurrent use; for its goroutines and pauses see [Cache].
func Token(token string, opts *Options) Refresher {
	return newToken(token, "the token", opts.orDefault())
}

// newToken returns the provider of a token. Errors refer to the token as name. newToken changes
// and keeps opts.
func newToken(token, name string, opts *Options) *projectProvider {
	if claims, err := oidc.ParseClaims(token); err == nil {
		opts.TeamID = cmp.Or(opts.TeamID, claims.TeamID)
		opts.ProjectID = cmp.Or(opts.ProjectID, claims.ProjectID)
	}
	hidden := redact.Hide(&token)
	login := func(_ context.Context, _ time.Duration, old string) (oidc.Login, error) {
		token := *hidden()
		switch {
		case token == "":
			return oidc.Login{}, fmt.Errorf("%w: the token is empty", ErrNoCredentials)
		case old != "":
			return oidc.Login{}, fmt.Errorf("the API rejected %s, which can't be refreshed", name)
		}
		// The search sends the token in a header.
		if err := (Credentials{Token: token, TeamID: "any", ProjectID: "any"}).Validate(); err != nil {
			return oidc.Login{}, malformedError{err}
		}
		return oidc.Login{Token: token}, nil
	}
	return newProjectProvider(opts, opts.host(), tokenSource{login: login, name: name, base: opts.base})
}

// malformedError wraps an error of Credentials.Validate.
type malformedError struct{ error }

func (e malformedError) Unwrap() error { return e.error }
