package proxy

import (
	"context"
	"errors"
)

// Why a request was refused. The error that [ErrorFromContext] returns, and
// that is logged, wraps one of these. None of them holds the token.
var (
	// ErrMissingHeaders: a forwarding header is missing or empty.
	ErrMissingHeaders = errors.New("proxy: missing forwarding headers")
	// ErrInvalidURL: the forwarding headers do not make an address that could
	// be asked, or one of them was sent twice or in an odd spelling.
	ErrInvalidURL = errors.New("proxy: invalid forwarded URL")
	// ErrInvalidToken: the token is malformed, badly signed, out of its time,
	// or meant for another forward URL.
	ErrInvalidToken = errors.New("proxy: invalid token")
	// ErrMissingIssuer: the token names no issuer.
	ErrMissingIssuer = errors.New("proxy: missing token issuer")
	// ErrInvalidIssuer: the token's issuer is not one that is trusted.
	ErrInvalidIssuer = errors.New("proxy: invalid token issuer")
	// ErrMissingClaims: a good token does not name team, project and sandbox.
	ErrMissingClaims = errors.New("proxy: missing claims in token")
	// ErrNotAllowed: the token's team, project or sandbox is not in the lists
	// of [Options].
	ErrNotAllowed = errors.New("proxy: sandbox not allowed")
	// ErrKeysUnavailable: the token could not be judged, because the keys of
	// its issuer could not be fetched.
	ErrKeysUnavailable = errors.New("proxy: signing keys unavailable")
)

type errorKey struct{}

// ErrorFromContext returns the reason why a request was refused. It is meant
// for the handler in [Options.Invalid]; elsewhere it returns nil.
func ErrorFromContext(ctx context.Context) error {
	err, _ := ctx.Value(errorKey{}).(error)
	return err
}
