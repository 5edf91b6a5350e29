package oidc

import (
	"context"
	"net/http"
	"net/url"
	"strings"
)

// Logout revokes the CLI's login at the issuer and empties its file, like
// `vercel logout`. If the issuer can't be reached, the login is unchanged. If
// there is no login, the error matches ErrNotLoggedIn.
func (h *Host) Logout(ctx context.Context) error {
	file, err := h.LoginFile()
	if err != nil {
		return err
	}
	unlock, err := lock(ctx, file)
	if err != nil {
		return err
	}
	defer unlock()
	login, content, err := readLogin(file)
	if err != nil {
		return err
	}
	r, err := replace(file)
	if err != nil {
		return err
	}
	defer r.drop()
	token := login.RefreshToken
	if token == "" {
		token = login.Token
	}
	if err := h.revoke(ctx, token); err != nil {
		return err
	}
	for _, key := range []string{"token", "refreshToken", "expiresAt"} {
		delete(content, key)
	}
	return r.commit(content)
}

// revoke revokes a token (RFC 7009).
func (h *Host) revoke(ctx context.Context, token string) error {
	found, err := h.endpoints(ctx, "revocation_endpoint")
	if err != nil {
		return err
	}
	form := url.Values{"client_id": {clientID}, "token": {token}}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, found[0], strings.NewReader(form.Encode()))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	_, err = h.do(req, "revoking the CLI's login")
	return err
}
