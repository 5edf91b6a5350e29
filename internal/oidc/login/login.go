// Package login creates and revokes the login that the Vercel CLI stores, for programs
// with a user. Package oidc reads and refreshes it.
package login

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"golang.org/x/oauth2"

	"github.com/go-vercel/sandbox/internal/oidc"
	"github.com/go-vercel/sandbox/internal/redact"
)

// Save stores a new login like `vercel login`. Unknown keys are preserved.
func Save(ctx context.Context, h *oidc.Host, login oidc.Login) error {
	return h.UpdateLogin(ctx, func(oidc.Login, error) (oidc.Login, error) { return login, nil })
}

// Logout revokes the CLI's login at the issuer and removes it from its file, like
// `vercel logout`. If the issuer can't be reached, the login is unchanged. If
// there is no login, the error matches oidc.ErrNotLoggedIn.
func Logout(ctx context.Context, h *oidc.Host) error {
	return h.UpdateLogin(ctx, func(old oidc.Login, err error) (oidc.Login, error) {
		if err == nil {
			err = revoke(ctx, h, cmp.Or(old.RefreshToken, old.Token))
		}
		return oidc.Login{}, err
	})
}

// revoke revokes a token (RFC 7009).
func revoke(ctx context.Context, h *oidc.Host, token string) error {
	found, err := h.Endpoints(ctx, "revocation_endpoint")
	if err != nil {
		return err
	}
	form := url.Values{"client_id": {oidc.ClientID}, "token": {token}}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, found[0], strings.NewReader(form.Encode()))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	_, err = h.Do(req, "revoking the CLI's login")
	return err
}

// Code is what a user needs to log a program in on another device.
type Code struct {
	VerificationURL         string
	VerificationURLComplete string
	UserCode                string
	ExpiresAt               time.Time
}

const (
	// loginTimeout is how long a login on a device may take by default.
	loginTimeout = 10 * time.Minute
	// maxPollSeconds limits the pause between polls that a server may request, so that it
	// fits into a time.Duration.
	maxPollSeconds = 300
)

// Device logs in with the device flow (RFC 8628). It calls prompt, which tells the user
// what to do, and polls the server until the user has logged in. It stores the login in
// the CLI's file.
func Device(ctx context.Context, h *oidc.Host, prompt func(context.Context, Code) error) (oidc.Login, error) {
	const doing = "logging in to Vercel"
	found, err := h.Endpoints(ctx, "token_endpoint", "device_authorization_endpoint")
	if err != nil {
		return oidc.Login{}, err
	}
	endpoint := oauth2.Endpoint{TokenURL: found[0], DeviceAuthURL: found[1], AuthStyle: oauth2.AuthStyleInParams}
	ctx = oauthContext(ctx, h)
	// Scopes are part of the first request only.
	config := oauth2.Config{ClientID: oidc.ClientID, Endpoint: endpoint, Scopes: []string{"openid", "offline_access"}}
	code, err := config.DeviceAuth(ctx)
	if err != nil {
		return toLogin(nil, err, doing)
	}
	config.Scopes = nil
	if code.DeviceCode == "" || code.UserCode == "" || !oidc.Issuers(code.VerificationURI) {
		return oidc.Login{}, &oidc.RemoteError{Doing: doing, Err: errors.New("the response has no usable device code")}
	}
	if !oidc.Issuers(code.VerificationURIComplete) {
		code.VerificationURIComplete = ""
	}
	code.Interval = min(max(code.Interval, 0), maxPollSeconds)
	if code.Expiry.IsZero() {
		code.Expiry = time.Now().Add(loginTimeout)
	}
	ctx, cancel := context.WithDeadline(ctx, code.Expiry)
	defer cancel()
	if err := prompt(ctx, Code{
		VerificationURL:         code.VerificationURI,
		VerificationURLComplete: code.VerificationURIComplete,
		UserCode:                code.UserCode,
		ExpiresAt:               code.Expiry,
	}); err != nil {
		return oidc.Login{}, err
	}
	token, err := config.DeviceAccessToken(ctx, code)
	for isNetworkError(err) && ctx.Err() == nil {
		// A failed poll is not a refusal by the user. Poll again after a pause.
		token, err = config.DeviceAccessToken(ctx, code)
	}
	login, err := toLogin(token, err, doing, code.DeviceCode)
	if err != nil {
		return oidc.Login{}, err
	}
	return login, Save(context.WithoutCancel(ctx), h, login)
}

func isNetworkError(err error) bool {
	_, ok := errors.AsType[*url.Error](err)
	return ok
}

// oauthContext returns a context that makes the oauth2 package use the host's client. It
// also applies ctx to all requests, because that package ignores it for some.
func oauthContext(ctx context.Context, h *oidc.Host) context.Context {
	send := roundTripper(func(req *http.Request) (*http.Response, error) {
		// The oauth2 package does not close every body, so read them here.
		res, body, err := h.Send(req.Clone(ctx))
		if e, ok := errors.AsType[*url.Error](err); ok {
			err = e.Err // the http.Client adds another url.Error
		}
		if err != nil {
			return nil, err
		}
		res.Body = io.NopCloser(bytes.NewReader(body))
		return res, nil
	})
	return context.WithValue(ctx, oauth2.HTTPClient, &http.Client{Transport: send})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// toLogin converts the result of the oauth2 package. The package's errors may quote a
// response with tokens. toLogin keeps only the standard code and description, and redacts
// the secrets in sent.
func toLogin(token *oauth2.Token, err error, doing string, sent ...string) (oidc.Login, error) {
	if err != nil {
		return oidc.Login{}, &oidc.RemoteError{Doing: doing, Err: oauthError(err, redact.Knowing(sent...))}
	}
	if !strings.EqualFold(token.Type(), "Bearer") {
		return oidc.Login{}, &oidc.RemoteError{Doing: doing, Err: oidc.ErrTokenType}
	}
	return oidc.Login{Token: token.AccessToken, RefreshToken: token.RefreshToken, Expiry: token.Expiry}, nil
}

func oauthError(err error, sent *redact.Known) error {
	if refusal, ok := errors.AsType[*oauth2.RetrieveError](err); ok {
		return oidc.Refusal(refusal.Response.StatusCode, refusal.ErrorCode, refusal.ErrorDescription, sent)
	}
	if netErr, ok := errors.AsType[*url.Error](err); ok {
		return sent.Error(netErr)
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return oidc.ErrNonstandard
}
