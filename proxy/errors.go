package proxy

import (
	"context"
	"errors"
)

// Reasons why a request was refused. The error returned by [ErrorFromContext],
// which is also logged, wraps one of these. None contains the token.
var (
	// ErrMissingHeaders: a forwarding header is missing or empty.
	ErrMissingHeaders = errors.New("proxy: missing forwarding headers")
	// ErrInvalidURL: the forwarding headers do not form a valid address, or one
	// of them was sent twice or in an unusual spelling.
	ErrInvalidURL = errors.New("proxy: invalid forwarded URL")
	// ErrInvalidToken: the token is malformed, badly signed, not valid at this
	// time, or intended for another forward URL.
	ErrInvalidToken = errors.New("proxy: invalid token")
	// ErrMissingIssuer: the token names no issuer.
	ErrMissingIssuer = errors.New("proxy: missing token issuer")
	// ErrInvalidIssuer: the token's issuer is not trusted.
	ErrInvalidIssuer = errors.New("proxy: invalid token issuer")
	// ErrMissingClaims: the token is valid but does not name a team, project or
	// sandbox.
	ErrMissingClaims = errors.New("proxy: missing claims in token: team_id, project_id and sandbox_id are needed")
	// ErrNotAllowed: the token's team, project or sandbox is not in the lists
	// of [Options].
	ErrNotAllowed = errors.New("proxy: sandbox not allowed")
	// ErrKeysUnavailable: the token could not be verified, because its issuer's
	// keys could not be fetched.
	ErrKeysUnavailable = errors.New("proxy: signing keys unavailable")
)

type errorKey struct{}

// ErrorFromContext returns the reason why a request was refused. It is intended
// for the handler in [Options.Invalid]; elsewhere it returns nil.
func ErrorFromContext(ctx context.Context) error {
	err, _ := ctx.Value(errorKey{}).(error)
	return err
}
