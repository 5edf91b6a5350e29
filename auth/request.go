package auth

import (
	"context"
	"net/http"

	"github.com/go-vercel/sandbox/internal/redact"
)

// tokenHeader is the header with the OIDC token of a deployment.
const tokenHeader = "X-Vercel-Oidc-Token"

type tokenKey struct{}

// ContextWithToken returns a context that makes [OIDC] and [Default] use the given OIDC token.
// Vercel sends such a token with each request to a deployed function, in the header
// x-vercel-oidc-token. An empty token removes the token of ctx.
func ContextWithToken(ctx context.Context, token string) context.Context {
	return context.WithValue(ctx, tokenKey{}, redact.Hide(&token))
}

// TokenHandler returns a handler that calls next with the request's OIDC token,
// if any, in the request's context (see [ContextWithToken]).
//
// It trusts the header x-vercel-oidc-token. Use it only where no one but Vercel
// can set that header, as in a function that runs on Vercel; elsewhere a caller
// could make the program act on a project of the caller's choice.
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
