// Package auth finds the credentials that a client of package sandbox calls the
// API with.
//
// [Default] looks where the official tools look, and is what a client uses that
// is not told otherwise. Any other [Provider] goes into
// sandbox.ClientOptions.Credentials: fixed ones ([Static]), those of the
// environment ([Env]), an OIDC token of the project ([OIDC]), the login of the
// Vercel CLI ([CLI]), a login through a browser ([Device]), several in order
// ([Chain]), or a function of the program's own ([ProviderFunc]), made quick by
// [Cache].
package auth

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"

	"github.com/go-vercel/sandbox/internal/redact"
)

// Credentials say who calls the API and for which project. All three fields
// are needed.
//
// However they are formatted, logged or encoded, the token is left out: it
// appears only in the Authorization header of requests to the API. (Package fmt
// shows it where it can't ask: in an unexported field of somebody else's struct,
// and with verbs such as %s and %d in a struct behind a pointer inside of
// another value. A [Provider] shows nothing anywhere.)
type Credentials struct {
	// Token is an access token, or an OIDC token of the project.
	Token string `secret:"value"`
	// TeamID is the ID or the slug of the team that owns the project.
	TeamID string
	// ProjectID is the ID or the name of the project that sandboxes belong to.
	ProjectID string

	login bool
}

// FromLogin reports whether the token is the login of the Vercel CLI on this
// machine, or was had or stored through it. A client sends such credentials to no
// address that only the environment names, other than those of vercel.com.
func (c Credentials) FromLogin() bool { return c.login }

// Provider gives the credentials of a request. The client asks before every
// request, so that a handle kept for a week never uses an old token.
//
// Implementations must be safe for concurrent use, and quick while what they
// have is fresh; [Cache] makes a slow one quick. A provider that has nothing to
// give returns an error that matches [ErrNoCredentials].
type Provider interface {
	// Credentials returns credentials that are valid now.
	Credentials(ctx context.Context) (Credentials, error)
}

// Refresher is a [Provider] that can replace credentials early. The client calls
// Refresh when the API has refused a token that, by its own claims, has expired,
// and retries the request with what it gets.
type Refresher interface {
	Provider

	// Refresh returns credentials newer than stale: those that another caller
	// got in the meantime, or else new ones.
	Refresh(ctx context.Context, stale Credentials) (Credentials, error)
}

// ProviderFunc is a function that is a [Provider].
type ProviderFunc func(ctx context.Context) (Credentials, error)

// Credentials calls f.
func (f ProviderFunc) Credentials(ctx context.Context) (Credentials, error) {
	return f(ctx)
}

// Static always gives c, exactly as it is: neither the environment nor the
// claims of a token override it, and it is never refreshed. When a field is
// missing or malformed, every request fails before it is sent, with an error
// that names the field.
func Static(c Credentials) Provider {
	// A function, unlike a struct, shows nothing of what it holds when printed.
	err := c.Validate()
	return ProviderFunc(func(context.Context) (Credentials, error) {
		if err != nil {
			return Credentials{}, err
		}
		return c, nil
	})
}

// Validate reports what keeps c from being sent: missing fields, as a
// *[MissingError], or characters that no server could accept. The error never
// shows a value. The client validates what every provider gives.
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
			return fmt.Errorf("sandbox: malformed credentials: %s may only have printable ASCII characters without spaces", f.name)
		}
	}
	return nil
}

// String describes c without its token.
func (c Credentials) String() string { return fmt.Sprintf("%+v", c) }

// Format shows c without its token, whatever the verb.
func (c Credentials) Format(f fmt.State, verb rune) { redact.Struct(f, verb, c) }

// MarshalJSON encodes c without its token.
func (c Credentials) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Token     string `json:"token,omitzero"`
		TeamID    string `json:"teamId"`
		ProjectID string `json:"projectId"`
	}{c.shown(), c.TeamID, c.ProjectID})
}

// LogValue logs c without its token.
func (c Credentials) LogValue() slog.Value {
	return slog.GroupValue(
		slog.String("token", c.shown()),
		slog.String("teamId", c.TeamID),
		slog.String("projectId", c.ProjectID),
	)
}

// shown is what stands for the token.
func (c Credentials) shown() string {
	if c.Token == "" {
		return ""
	}
	return redact.Mark
}
