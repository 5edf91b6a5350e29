package oidc

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"golang.org/x/oauth2"

	"github.com/go-vercel/sandbox/internal/redact"
)

const (
	issuer = "https://vercel.com"
	// ClientID is the CLI's, whose login is shared.
	ClientID = "cl_HYyOPBNtFMfHhaUn9L4QPfTZz6TP47bp"
)

// Endpoints asks the issuer for its endpoints of those names. A login is only ever
// sent to a host of the issuer, whatever the response says.
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

// Issuers reports whether an address is one of the issuer's.
func Issuers(address string) bool {
	u, err := url.Parse(address)
	return err == nil && u.Scheme == "https" && u.Port() == "" &&
		(u.Hostname() == "vercel.com" || strings.HasSuffix(u.Hostname(), ".vercel.com"))
}

// OAuthContext returns ctx for the oauth2 package, which then makes its
// requests with the host's client, and with ctx, which that package ignores for
// some of them.
func (h *Host) OAuthContext(ctx context.Context) context.Context {
	c := *h.client
	base := c.Transport
	if base == nil {
		base = http.DefaultTransport
	}
	// That package does not close every body, so bodies are read here, and the
	// timeout is enforced here.
	timeout := c.Timeout
	c.Timeout = 0
	c.Transport = roundTripper(func(req *http.Request) (*http.Response, error) {
		bound, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		req = req.Clone(bound)
		req.Header.Set("User-Agent", userAgent)
		res, err := base.RoundTrip(req)
		if err != nil {
			return nil, err
		}
		defer func() { _ = res.Body.Close() }()
		body, err := io.ReadAll(io.LimitReader(res.Body, maxBody))
		if err != nil {
			return nil, err
		}
		res.Body = io.NopCloser(bytes.NewReader(body))
		return res, nil
	})
	return context.WithValue(ctx, oauth2.HTTPClient, &c)
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// refreshLogin exchanges a refresh token for a new login.
func (h *Host) refreshLogin(ctx context.Context, refreshToken string) (Login, error) {
	found, err := h.Endpoints(ctx, "token_endpoint")
	if err != nil {
		return Login{}, err
	}
	config := oauth2.Config{ClientID: ClientID, Endpoint: oauth2.Endpoint{TokenURL: found[0], AuthStyle: oauth2.AuthStyleInParams}}
	token, err := config.TokenSource(h.OAuthContext(ctx), &oauth2.Token{RefreshToken: refreshToken}).Token()
	return ToLogin(token, err, "refreshing the CLI's login", refreshToken)
}

// ToLogin converts the result of the oauth2 package. Its errors may quote the
// response, which can contain tokens, so only the code and the description that
// the standard defines are kept, without the secrets that were sent.
func ToLogin(token *oauth2.Token, err error, doing string, sent ...string) (Login, error) {
	if err != nil {
		return Login{}, &RemoteError{doing, oauthError(err, redact.Knowing(sent...))}
	}
	if !strings.EqualFold(token.Type(), "Bearer") {
		return Login{}, &RemoteError{doing, errors.New("the response has a token of an unknown type")}
	}
	return Login{Token: token.AccessToken, RefreshToken: token.RefreshToken, Expiry: token.Expiry}, nil
}

func oauthError(err error, sent *redact.Known) error {
	refusal, ok := errors.AsType[*oauth2.RetrieveError](err)
	if ok {
		return &OAuthError{
			Status: refusal.Response.StatusCode,
			Code:   sent.Text(clip(refusal.ErrorCode)), Description: sent.Text(clip(refusal.ErrorDescription)),
		}
	}
	if netErr, ok := errors.AsType[*url.Error](err); ok {
		return sent.Error(netErr)
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return errors.New("the response does not conform to the standard")
}

// OAuthError is an error response of the authorization server.
type OAuthError struct {
	Status            int
	Code, Description string
}

// Is reports that a login unknown to the server has expired for good.
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
