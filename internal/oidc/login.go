package oidc

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"
)

// Login is the login stored by the CLI.
type Login struct {
	Token        string
	RefreshToken string
	// Expiry is zero for a token that does not expire.
	Expiry time.Time
}

// Login returns the CLI's login. It is refreshed and written back if its token
// expires within ahead, or is old, which was rejected. If that fails, the file
// is unchanged. If there is no login, the error matches ErrNotLoggedIn.
func (h *Host) Login(ctx context.Context, ahead time.Duration, old string) (Login, error) {
	file, err := h.LoginFile()
	if err != nil {
		return Login{}, err
	}
	good := func(l Login) bool {
		return l.Token != old && !Expired(l.Expiry, time.Now().Add(ahead))
	}
	login, _, err := readLogin(file)
	if err != nil || good(login) {
		return login, err
	}
	if login.RefreshToken == "" {
		return staleLogin(file, login, old, kind{ErrRunOut, "it has no refresh token (run `vercel login`)"})
	}
	unlock, err := lock(ctx, file)
	if err != nil {
		return staleLogin(file, login, old, err)
	}
	defer unlock()
	// Another process may have refreshed it while this one waited.
	login, content, err := readLogin(file)
	if err != nil || good(login) {
		return login, err
	}
	// A refresh token can be used once. Before it is used, it must be certain
	// that the next one can be stored.
	r, err := replace(file)
	if err != nil {
		return staleLogin(file, login, old, err)
	}
	defer r.drop()
	if refused(file, login.RefreshToken) {
		return staleLogin(file, login, old, kind{ErrRunOut, "its refresh token was refused (run `vercel login`)"})
	}
	fresh, err := h.refreshLogin(ctx, login.RefreshToken)
	if errors.Is(err, ErrRunOut) {
		refuse(file, login.RefreshToken)
	}
	if err != nil {
		return staleLogin(file, login, old, err)
	}
	if err := writeLogin(r, content, fresh); err != nil {
		return Login{}, fmt.Errorf("the CLI's login was refreshed but not kept (run `vercel login` again): %w", err)
	}
	return fresh, nil
}

// staleLogin is the result if a login could not be refreshed: it is used until
// it really expires.
func staleLogin(file string, login Login, refused string, err error) (Login, error) {
	if login.Token != refused && !Expired(login.Expiry, time.Now()) {
		return login, nil
	}
	return Login{}, fmt.Errorf("the CLI's login in %s has expired: %w", file, err)
}

// SaveLogin stores a new login like `vercel login`. Unknown keys are preserved.
func (h *Host) SaveLogin(ctx context.Context, login Login) error {
	file, err := h.LoginFile()
	if err != nil {
		return err
	}
	unlock, err := lock(ctx, file)
	if err != nil {
		return err
	}
	defer unlock()
	content, err := readObject(file)
	if errors.Is(err, fs.ErrNotExist) {
		content, err = object{}, nil
	}
	if err != nil {
		return err
	}
	r, err := replace(file)
	if err != nil {
		return err
	}
	return writeLogin(r, content, login)
}

func readLogin(file string) (Login, object, error) {
	o, err := readObject(file)
	if errors.Is(err, fs.ErrNotExist) {
		return Login{}, nil, ErrNotLoggedIn
	}
	if err != nil {
		return Login{}, nil, fmt.Errorf("the CLI's login: %w", err)
	}
	var login Login
	var expiry *float64
	if err := errors.Join(
		o.get(file, "token", &login.Token),
		o.get(file, "refreshToken", &login.RefreshToken),
		o.get(file, "expiresAt", &expiry),
	); err != nil {
		return Login{}, nil, fmt.Errorf("the CLI's login: %w", err)
	}
	if login.Token == "" {
		return Login{}, nil, ErrNotLoggedIn
	}
	if expiry != nil {
		login.Expiry = unix(*expiry)
	}
	return login, o, nil
}

func writeLogin(r *replacement, o object, login Login) error {
	err := o.set("token", login.Token)
	delete(o, "expiresAt")
	if !login.Expiry.IsZero() {
		err = errors.Join(err, o.set("expiresAt", login.Expiry.Unix()))
	}
	delete(o, "refreshToken")
	if login.RefreshToken != "" {
		err = errors.Join(err, o.set("refreshToken", login.RefreshToken))
	}
	if err != nil {
		r.drop()
		return err
	}
	return r.commit(o)
}
