package auth

import (
	"context"
	"net/http"

	"github.com/go-vercel/sandbox/internal/redact"
)

// tokenHeader is where the platform puts the OIDC token of a deployment.
const tokenHeader = "X-Vercel-Oidc-Token"

type tokenKey struct{}

// ContextWithToken returns a context for whose calls [OIDC] and [Default] use this
// OIDC token: the one that Vercel sends with each request to a deployed function,
// in the header x-vercel-oidc-token. An empty token takes away the one that ctx
// has.
func ContextWithToken(ctx context.Context, token string) context.Context {
	return context.WithValue(ctx, tokenKey{}, redact.Hide(&token))
}

// TokenHandler returns a handler that calls next with the request's OIDC token,
// if it has one, in its context (see [ContextWithToken]).
//
// It believes the header x-vercel-oidc-token. Use it only where nobody but
// Vercel can set that, as in a function that Vercel runs: elsewhere a caller
// could have the program act on a project of the caller's choice.
func TokenHandler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if token := r.Header.Get(tokenHeader); token != "" {
			r = r.WithContext(ContextWithToken(r.Context(), token))
		}
		next.ServeHTTP(w, r)
	})
}

func tokenFromContext(ctx context.Context) string {
	if token, ok := ctx.Value(tokenKey{}).(redact.Hidden[string]); ok {
		return *token()
	}
	return ""
}
