package sandbox

import (
	"context"
	"errors"
	"net/http"

	"github.com/go-vercel/sandbox/internal/oidc"
)

// CredentialsOptions are where the makers of credentials look, and how they
// reach the network. A nil pointer is the zero value: this process, its
// working directory, an HTTP client of their own.
type CredentialsOptions struct {
	// HTTPClient makes the requests for tokens. Nil is a client of its own.
	HTTPClient *http.Client
	// LookupEnv reads a variable of the environment. Nil is os.LookupEnv.
	LookupEnv func(key string) (string, bool)
}

// DefaultCredentials finds credentials like the official tools do. In order:
//
//  1. VERCEL_TOKEN with VERCEL_TEAM_ID and VERCEL_PROJECT_ID
//  2. VERCEL_OIDC_TOKEN
func DefaultCredentials(opts *CredentialsOptions) CredentialsProvider {
	var o CredentialsOptions
	if opts != nil {
		o = *opts
	}
	env := lookupEnv(o.LookupEnv)
	return CredentialsFunc(func(context.Context) (Credentials, error) {
		c, err := credentialsFromEnv(env)
		if err == nil || !errors.Is(err, ErrNoCredentials) {
			return c, err
		}
		token := env.get(envOIDCToken)
		if token == "" {
			return Credentials{}, &CredentialsError{OnVercel: env.get(envOnVercel) != "", Err: ErrNoCredentials}
		}
		claims, err := oidc.ParseClaims(token)
		if err != nil {
			return Credentials{}, &CredentialsError{OnVercel: env.get(envOnVercel) != "", Err: err}
		}
		return Credentials{Token: token, TeamID: claims.TeamID, ProjectID: claims.ProjectID}, nil
	})
}
