package sandbox

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"strings"
)

// redacted stands for a secret wherever a value is formatted.
const redacted = "REDACTED"

// Credentials say who calls the API and for which project. All three fields
// are needed.
//
// However they are formatted, logged or encoded, the token is left out: it
// appears only in the Authorization header of requests to the API. (Package fmt
// can not do so for a value in an unexported field of somebody else's struct.)
type Credentials struct {
	// Token is an access token, or an OIDC token of the project.
	Token string
	// TeamID is the ID or the slug of the team that owns the project.
	TeamID string
	// ProjectID is the ID or the name of the project that sandboxes belong to.
	ProjectID string
}

// CredentialsProvider gives the credentials of a request. The client asks
// before every request, so that a handle kept for a week never uses an old
// token.
//
// Implementations must be safe for concurrent use, and quick while what they
// have is fresh; CacheCredentials makes a slow one quick. A provider that has
// nothing to give returns an error that matches ErrNoCredentials.
type CredentialsProvider interface {
	Credentials(ctx context.Context) (Credentials, error)
}

// CredentialsRefresher is a CredentialsProvider that can replace credentials
// before their time. The client calls Refresh when the API refused a token
// whose own expiry has passed, and repeats the request with what it gets.
type CredentialsRefresher interface {
	CredentialsProvider

	// Refresh returns credentials newer than stale: those that another caller
	// got in the meantime, or else new ones.
	Refresh(ctx context.Context, stale Credentials) (Credentials, error)
}

// CredentialsFunc is a function that is a CredentialsProvider.
type CredentialsFunc func(ctx context.Context) (Credentials, error)

// Credentials calls f.
func (f CredentialsFunc) Credentials(ctx context.Context) (Credentials, error) {
	return f(ctx)
}

// StaticCredentials always gives c, exactly as it is: neither the environment
// nor the claims of a token override it, and it is never refreshed. When a
// field is missing or malformed, every request fails, before it is sent, with
// an error that names the field.
func StaticCredentials(c Credentials) CredentialsProvider {
	// A function, unlike a struct, shows nothing of what it holds when printed.
	err := c.validate()
	return CredentialsFunc(func(context.Context) (Credentials, error) {
		if err != nil {
			return Credentials{}, err
		}
		return c, nil
	})
}

// hidden holds what secrets are in. Package fmt, which looks into unexported
// fields and with some verbs behind pointers, shows a function's address only.
type hidden[T any] func() *T

func hide[T any](value *T) hidden[T] { return func() *T { return value } }

// validate reports what keeps c from being sent: missing fields, or characters
// that no server could accept. It never shows a value.
func (c Credentials) validate() error {
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
		return &MissingCredentialsError{Missing: missing}
	}
	for _, f := range fields {
		if strings.ContainsFunc(f.value, func(r rune) bool { return r <= ' ' || r > '~' }) {
			return fmt.Errorf("sandbox: malformed credentials: %s may only have printable ASCII characters without spaces", f.name)
		}
	}
	return nil
}

// String describes c without its token.
func (c Credentials) String() string {
	return fmt.Sprintf("{Token:%s TeamID:%s ProjectID:%s}", c.shown(), c.TeamID, c.ProjectID)
}

// GoString describes c without its token.
func (c Credentials) GoString() string {
	return "sandbox.Credentials" + c.String()
}

// Format writes the description of String, or for %#v of GoString, whatever
// the verb.
func (c Credentials) Format(f fmt.State, verb rune) {
	if verb == 'v' && f.Flag('#') {
		_, _ = io.WriteString(f, c.GoString())
		return
	}
	_, _ = io.WriteString(f, c.String())
}

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
	return redacted
}
