package oidc

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/go-vercel/sandbox/internal/redact"
)

const (
	issuer = "https://vercel.com"
	// ClientID is the client ID of the CLI, because its login is shared.
	ClientID = "cl_HYyOPBNtFMfHhaUn9L4QPfTZz6TP47bp"
)

// Endpoints returns the issuer's endpoints with the given names. It accepts only endpoints
// on hosts of the issuer, because the login is sent to them.
func (h *Host) Endpoints(ctx context.Context, names ...string) (found []string, err error) {
	const doing = "discovering the OAuth endpoints of " + issuer
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, issuer+"/.well-known/openid-configuration", nil)
	if err != nil {
		return nil, err
	}
	body, err := h.Do(req, doing)
	if err != nil {
		return nil, err
	}
	var resp map[string]any
	_ = json.Unmarshal(body, &resp)
	for _, name := range names {
		address, _ := resp[name].(string)
		if !Issuers(address) {
			return nil, &RemoteError{doing, errors.New("the response has no usable " + name)}
		}
		found = append(found, address)
	}
	return found, nil
}

// Issuers reports whether an address belongs to the issuer.
func Issuers(address string) bool {
	u, err := url.Parse(address)
	return err == nil && u.Scheme == "https" && u.Port() == "" &&
		(u.Hostname() == "vercel.com" || strings.HasSuffix(u.Hostname(), ".vercel.com"))
}

// refreshLogin exchanges a refresh token for a new login (RFC 6749, section 6).
func (h *Host) refreshLogin(ctx context.Context, refreshToken string) (Login, error) {
	const doing = "refreshing the CLI's login"
	found, err := h.Endpoints(ctx, "token_endpoint")
	if err != nil {
		return Login{}, err
	}
	form := url.Values{"grant_type": {"refresh_token"}, "refresh_token": {refreshToken}, "client_id": {ClientID}}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, found[0], strings.NewReader(form.Encode()))
	if err != nil {
		return Login{}, err
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	known := redact.Knowing(refreshToken)
	res, body, err := h.Send(req)
	if err != nil {
		return Login{}, &RemoteError{doing, known.Error(err)}
	}
	var resp struct {
		Token        string      `json:"access_token"`
		Type         string      `json:"token_type"`
		RefreshToken string      `json:"refresh_token"`
		Seconds      json.Number `json:"expires_in"`
		Error        string      `json:"error"`
		Description  string      `json:"error_description"`
	}
	_ = json.Unmarshal(body, &resp) // the refresh token is used up: accept what can be decoded
	switch {
	case res.StatusCode/100 != 2 || resp.Error != "":
		return Login{}, &RemoteError{doing, Refusal(res.StatusCode, resp.Error, resp.Description, known)}
	case resp.Token == "":
		return Login{}, &RemoteError{doing, ErrNonstandard}
	case resp.Type != "" && !strings.EqualFold(resp.Type, "Bearer"):
		return Login{}, &RemoteError{doing, ErrTokenType}
	}
	login := Login{Token: resp.Token, RefreshToken: cmp.Or(resp.RefreshToken, refreshToken)}
	if seconds, err := resp.Seconds.Float64(); err == nil && seconds != 0 {
		login.Expiry = unix(float64(time.Now().Unix()) + seconds)
	}
	return login, nil
}

// Errors of a response with a token.
var (
	ErrNonstandard = errors.New("the response does not conform to the standard")
	ErrTokenType   = errors.New("the response has a token of an unknown type")
)

// Refusal returns the error of a response. It redacts the secrets in sent, which a server
// may quote.
func Refusal(status int, code, description string, sent *redact.Known) *OAuthError {
	return &OAuthError{Status: status, Code: sent.Text(clip(code)), Description: sent.Text(clip(description))}
}

// OAuthError is an error response of the authorization server.
type OAuthError struct {
	Status            int
	Code, Description string
}

// Is makes the error for a login that the server does not know match ErrRunOut.
func (e *OAuthError) Is(target error) bool {
	return target == ErrRunOut && e.Code == "invalid_grant"
}

func (e *OAuthError) Error() string {
	switch {
	case e.Code == "":
		return fmt.Sprintf("HTTP %d: %s", e.Status, http.StatusText(e.Status))
	case e.Description == "":
		return e.Code
	default:
		return e.Code + ": " + e.Description
	}
}
