package sandbox

import (
	"context"
	"errors"
	"fmt"
)

// ChainCredentials asks the providers in order and gives what the first one
// gives that has something. Only an error that matches ErrNoCredentials leads
// to the next: a login that is broken or a variable that is missing is not
// covered up by somebody else's credentials. When none has any, the error tells
// about each and matches ErrNoCredentials.
func ChainCredentials(providers ...CredentialsProvider) CredentialsRefresher {
	return chainCredentials(append([]CredentialsProvider(nil), providers...))
}

type chainCredentials []CredentialsProvider

func (p chainCredentials) Credentials(ctx context.Context) (Credentials, error) {
	return p.first(func(provider CredentialsProvider) (Credentials, error) {
		return provider.Credentials(ctx)
	})
}

// Refresh refreshes through the provider that now comes first. One that can't
// refresh is asked again.
func (p chainCredentials) Refresh(ctx context.Context, stale Credentials) (Credentials, error) {
	return p.first(func(provider CredentialsProvider) (Credentials, error) {
		if r, ok := provider.(CredentialsRefresher); ok {
			return r.Refresh(ctx, stale)
		}
		return provider.Credentials(ctx)
	})
}

func (p chainCredentials) first(ask func(CredentialsProvider) (Credentials, error)) (Credentials, error) {
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
