// Package auth provides the credentials with which a client of package sandbox
// calls the API.
//
// [Default] finds the same credentials as the official tools, and is the default of a
// client. Set any other [Provider] in sandbox.ClientOptions.Credentials:
//
//   - [Static] provides fixed credentials.
//   - [Token] provides an access token, and finds its project.
//   - [Env] reads environment variables.
//   - [OIDC] provides an OIDC token of the project.
//   - [CLI] uses the login of the Vercel CLI.
//   - Package device logs the user in through a browser.
//   - [Chain] tries several providers in order.
//   - [ProviderFunc] makes a provider of a function, which [Cache] can make fast.
package auth

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"

	"github.com/go-vercel/sandbox/internal/redact"
)

// Credentials identify the caller of the API and the project. All three fields
// are required.
//
// The token is omitted when Credentials are formatted, logged or encoded; it
// appears only in the Authorization header of requests to the API. There is an
// exception: package fmt shows the token where it does not call methods. That is
// in an unexported field of another struct, and with verbs such as %s and %d in a
// struct behind a pointer inside another value. A [Provider] never shows it.
type Credentials struct {
	// Token is an access token, or an OIDC token of the project.
	Token string `secret:"value"`
	// TeamID is the ID or slug of the team that owns the project.
	TeamID string
	// ProjectID is the ID or name of the project that sandboxes belong to.
	ProjectID string

	fromLogin bool
}

// FromLogin reports whether the token is the login of the Vercel CLI on this
// machine, or was obtained with it. A client does not send such credentials to
// an address from the environment that is not on vercel.com.
func (c Credentials) FromLogin() bool { return c.fromLogin }

// Provider provides the credentials of requests. The client calls it before
// every request, so that a handle kept for a week never uses an old token.
//
// Implementations must be safe for concurrent use, and fast while their
// credentials are fresh; [Cache] makes a slow one fast. A provider without
// credentials returns an error that matches [ErrNoCredentials].
type Provider interface {
	// Credentials returns credentials that are valid now.
	Credentials(ctx context.Context) (Credentials, error)
}

// Refresher is a [Provider] that can replace credentials early. If the API
// rejects a token that has expired by its own claims, the client calls Refresh
// and retries the request with the result.
type Refresher interface {
	Provider

	// Refresh returns credentials newer than stale: those that another caller
	// has obtained, or otherwise new ones.
	Refresh(ctx context.Context, stale Credentials) (Credentials, error)
}

// ProviderFunc is an adapter to use a function as a [Provider].
type ProviderFunc func(ctx context.Context) (Credentials, error)

// Credentials calls f.
func (f ProviderFunc) Credentials(ctx context.Context) (Credentials, error) {
	return f(ctx)
}

// Static returns a provider of c, unchanged: neither the environment nor the
// claims of a token override it, and it is never refreshed. If a field is
// missing or malformed, every request fails before it is sent, with an error
// that names the field.
func Static(c Credentials) Provider {
	// Unlike a struct, a function does not show its values when printed.
	err := c.Validate()
	return ProviderFunc(func(context.Context) (Credentials, error) {
		if err != nil {
			return Credentials{}, err
		}
		return c, nil
	})
}

// Validate returns an error if c can't be sent: a *[MissingError] for missing
// fields, or an error for characters that no server could accept. The error
// never contains a value. The client validates the credentials of every
// provider.
func (c Credentials) Validate() error {
	fields := []struct{ name, value string }{
		{"Token", c.Token}, {"TeamID", c.TeamID}, {"ProjectID", c.ProjectID},
	}
	var missing []string
	for _, f := range fields {
		if f.value == "" {
			missing = append(missing, f.name)
		}
	}
	if missing != nil {
		return &MissingError{Missing: missing}
	}
	for _, f := range fields {
		if strings.ContainsFunc(f.value, func(r rune) bool { return r <= ' ' || r > '~' }) {
			return fmt.Errorf("sandbox: malformed credentials: %s may only contain printable ASCII characters without spaces", f.name)
		}
	}
	return nil
}

// String returns c without its token.
func (c Credentials) String() string { return fmt.Sprintf("%+v", c) }

// Format prints c without its token, for every verb.
func (c Credentials) Format(f fmt.State, verb rune) { redact.Struct(f, verb, c) }

// MarshalJSON encodes c without its token.
func (c Credentials) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Token     string `json:"token,omitzero"`
		TeamID    string `json:"teamId"`
		ProjectID string `json:"projectId"`
	}{c.redactedToken(), c.TeamID, c.ProjectID})
}

// LogValue implements [slog.LogValuer]. It omits the token.
func (c Credentials) LogValue() slog.Value {
	return slog.GroupValue(
		slog.String("token", c.redactedToken()),
		slog.String("teamId", c.TeamID),
		slog.String("projectId", c.ProjectID),
	)
}

// redactedToken returns the replacement for the token.
func (c Credentials) redactedToken() string {
	if c.Token == "" {
		return ""
	}
	return redact.Mark
}
