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

// Login returns the CLI's login. If its token expires within ahead, or equals old, a token
// that was rejected, Login refreshes it and writes it back. If the refresh fails, the file
// is unchanged. If there is no login, the error matches ErrNotLoggedIn.
func (h *Host) Login(ctx context.Context, ahead time.Duration, old string) (Login, error) {
	file, err := h.LoginFile()
	if err != nil {
		return Login{}, err
	}
	good := func(l Login) bool {
		return l.Token != "" && l.Token != old && !Expired(l.Expiry, time.Now().Add(ahead))
	}
	login, _, err := readLogin(file)
	if errors.Is(err, ErrNotLoggedIn) {
		if sealed, sealErr := h.loginIsSealed(); sealErr != nil {
			return Login{}, sealErr
		} else if sealed {
			return Login{}, errSealed
		}
	}
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
	if isRefused(file, login.RefreshToken) {
		return staleLogin(file, login, old, kind{ErrRunOut, "its refresh token was refused (run `vercel login`)"})
	}
	fresh, err := h.refreshLogin(ctx, login.RefreshToken)
	if errors.Is(err, ErrRunOut) {
		storeRefusal(file, login.RefreshToken)
	}
	if err != nil {
		return staleLogin(file, login, old, err)
	}
	if err := writeLogin(r, content, fresh); err != nil {
		return Login{}, fmt.Errorf("the CLI's login was refreshed but not kept (run `vercel login` again): %w", err)
	}
	return fresh, nil
}

// staleLogin returns the result after a failed refresh: the login is used until it expires.
func staleLogin(file string, login Login, refused string, err error) (Login, error) {
	if login.Token != "" && login.Token != refused && !Expired(login.Expiry, time.Now()) {
		return login, nil
	}
	return Login{}, fmt.Errorf("the CLI's login in %s has expired: %w", file, err)
}

// UpdateLogin replaces the CLI's login by the result of change, while holding the file's
// lock. A zero Login removes it. Unknown keys are preserved. change receives an error if
// there is no login. If change fails, the file is not modified.
func (h *Host) UpdateLogin(ctx context.Context, change func(old Login, err error) (Login, error)) error {
	file, err := h.LoginFile()
	if err != nil {
		return err
	}
	unlock, err := lock(ctx, file)
	if err != nil {
		return err
	}
	defer unlock()
	old, content, unread := readLogin(file)
	if content == nil {
		return unread
	}
	// Check that the file can be written before change has an effect at the server.
	r, err := replace(file)
	if err != nil {
		return err
	}
	defer r.drop()
	login, err := change(old, unread)
	if err != nil {
		return err
	}
	return writeLogin(r, content, login)
}

// readLogin returns the login and the content of the file. The content is nil if it is not
// a JSON object.
func readLogin(file string) (Login, object, error) {
	o, err := readObject(file)
	if errors.Is(err, fs.ErrNotExist) {
		return Login{}, object{}, ErrNotLoggedIn
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
		return Login{}, o, fmt.Errorf("the CLI's login: %w", err)
	}
	if login.Token == "" && login.RefreshToken == "" {
		return Login{}, o, ErrNotLoggedIn
	}
	if expiry != nil {
		login.Expiry = unix(*expiry)
	}
	return login, o, nil
}

func writeLogin(r *fileReplacement, o object, login Login) error {
	for _, key := range []string{"token", "refreshToken", "expiresAt"} {
		delete(o, key)
	}
	var err error
	if login.Token != "" {
		err = o.set("token", login.Token)
	}
	if !login.Expiry.IsZero() {
		err = errors.Join(err, o.set("expiresAt", login.Expiry.Unix()))
	}
	if login.RefreshToken != "" {
		err = errors.Join(err, o.set("refreshToken", login.RefreshToken))
	}
	if err != nil {
		r.drop()
		return err
	}
	return r.commit(o)
}
