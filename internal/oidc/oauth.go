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
	"time"

	"golang.org/x/oauth2"

	"github.com/go-vercel/sandbox/internal/redact"
)

const (
	issuer = "https://vercel.com"
	// clientID is the CLI's, whose login is shared.
	clientID = "cl_HYyOPBNtFMfHhaUn9L4QPfTZz6TP47bp"
)

// endpoints asks the issuer for its endpoints of those names. A login is only ever
// sent to a host of the issuer, whatever the response says.
func (h *Host) endpoints(ctx context.Context, names ...string) (found []string, err error) {
	const doing = "discovering the OAuth endpoints of " + issuer
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, issuer+"/.well-known/openid-configuration", nil)
	if err != nil {
		return nil, err
	}
	body, err := h.do(req, doing)
	if err != nil {
		return nil, err
	}
	var resp map[string]any
	_ = json.Unmarshal(body, &resp)
	for _, name := range names {
		address, _ := resp[name].(string)
		if !issuers(address) {
			return nil, &RemoteError{doing, errors.New("the response has no usable " + name)}
		}
		found = append(found, address)
	}
	return found, nil
}

// issuers reports whether an address is one of the issuer's.
func issuers(address string) bool {
	u, err := url.Parse(address)
	return err == nil && u.Scheme == "https" && u.Port() == "" &&
		(u.Hostname() == "vercel.com" || strings.HasSuffix(u.Hostname(), ".vercel.com"))
}

// oauthContext returns ctx for the oauth2 package, which then makes its
// requests with the host's client, and with ctx, which that package ignores for
// some of them.
func (h *Host) oauthContext(ctx context.Context) context.Context {
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
	found, err := h.endpoints(ctx, "token_endpoint")
	if err != nil {
		return Login{}, err
	}
	config := oauth2.Config{ClientID: clientID, Endpoint: oauth2.Endpoint{TokenURL: found[0], AuthStyle: oauth2.AuthStyleInParams}}
	token, err := config.TokenSource(h.oauthContext(ctx), &oauth2.Token{RefreshToken: refreshToken}).Token()
	return toLogin(token, err, "refreshing the CLI's login", refreshToken)
}

// toLogin converts the result of the oauth2 package. Its errors may quote the
// response, which can contain tokens, so only the code and the description that
// the standard defines are kept, without the secrets that were sent.
func toLogin(token *oauth2.Token, err error, doing string, sent ...string) (Login, error) {
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

// DeviceCode is what a user needs to log a program in on another device.
type DeviceCode struct {
	VerificationURI         string
	VerificationURIComplete string
	UserCode                string
	Expiry                  time.Time
}

const (
	// loginTimeout is how long a login on a device may take by default.
	loginTimeout = 10 * time.Minute
	// maxPollSeconds limits the pause between two polls that a server may
	// request, which is multiplied to something a timer can hold.
	maxPollSeconds = 300
)

// DeviceLogin logs in by the device flow (RFC 8628): prompt tells the user what
// to do, then the server is polled until the user has done it. The login is
// stored in the CLI's file.
func (h *Host) DeviceLogin(ctx context.Context, prompt func(context.Context, DeviceCode) error) (Login, error) {
	const doing = "logging in to Vercel"
	found, err := h.endpoints(ctx, "token_endpoint", "device_authorization_endpoint")
	if err != nil {
		return Login{}, err
	}
	endpoint := oauth2.Endpoint{TokenURL: found[0], DeviceAuthURL: found[1], AuthStyle: oauth2.AuthStyleInParams}
	ctx = h.oauthContext(ctx)
	// Scopes are part of the first request only.
	config := oauth2.Config{ClientID: clientID, Endpoint: endpoint, Scopes: []string{"openid", "offline_access"}}
	code, err := config.DeviceAuth(ctx)
	if err != nil {
		return Login{}, &RemoteError{doing, oauthError(err, redact.Knowing())}
	}
	config.Scopes = nil
	if code.DeviceCode == "" || code.UserCode == "" || !issuers(code.VerificationURI) {
		return Login{}, &RemoteError{doing, errors.New("the response has no usable device code")}
	}
	if !issuers(code.VerificationURIComplete) {
		code.VerificationURIComplete = ""
	}
	code.Interval = min(max(code.Interval, 0), maxPollSeconds)
	if code.Expiry.IsZero() {
		code.Expiry = time.Now().Add(loginTimeout)
	}
	ctx, cancel := context.WithDeadline(ctx, code.Expiry)
	defer cancel()
	if err := prompt(ctx, DeviceCode{
		VerificationURI:         code.VerificationURI,
		VerificationURIComplete: code.VerificationURIComplete,
		UserCode:                code.UserCode,
		Expiry:                  code.Expiry,
	}); err != nil {
		return Login{}, err
	}
	token, err := config.DeviceAccessToken(ctx, code)
	for isNetwork(err) && ctx.Err() == nil {
		// A failed poll is not a refusal by the user. This begins with a pause.
		token, err = config.DeviceAccessToken(ctx, code)
	}
	login, err := toLogin(token, err, doing, code.DeviceCode)
	if err != nil {
		return Login{}, err
	}
	return login, h.SaveLogin(context.WithoutCancel(ctx), login)
}

func isNetwork(err error) bool {
	_, ok := errors.AsType[*url.Error](err)
	return ok
}
