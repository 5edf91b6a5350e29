package auth

import (
	"context"
	"errors"
	"fmt"
)

// Chain returns a provider that calls the providers in order and returns the
// first credentials. Only an error that matches [ErrNoCredentials] leads to the
// next provider: a broken login or a missing variable is not hidden by other
// credentials. If none has credentials, the error joins those of all and
// matches ErrNoCredentials.
func Chain(providers ...Provider) Refresher {
	return chain(append([]Provider(nil), providers...))
}

type chain []Provider

func (p chain) Credentials(ctx context.Context) (Credentials, error) {
	return p.first(func(provider Provider) (Credentials, error) {
		return provider.Credentials(ctx)
	})
}

// Refresh refreshes the first provider that has credentials. If that is not a
// Refresher, Refresh calls its method Credentials again.
func (p chain) Refresh(ctx context.Context, stale Credentials) (Credentials, error) {
	return p.first(func(provider Provider) (Credentials, error) {
		if r, ok := provider.(Refresher); ok {
			return r.Refresh(ctx, stale)
		}
		return provider.Credentials(ctx)
	})
}

func (p chain) first(ask func(Provider) (Credentials, error)) (Credentials, error) {
	var errs []error
	for _, provider := range p {
		c, err := ask(provider)
		if err == nil || !errors.Is(err, ErrNoCredentials) {
			return c, err
		}
		errs = append(errs, err)
	}
	switch len(errs) {
	case 0:
		return Credentials{}, fmt.Errorf("%w: the chain is empty", ErrNoCredentials)
	case 1:
		return Credentials{}, errs[0]
	default:
		return Credentials{}, errors.Join(errs...)
	}
}
