package sandboxtest

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/go-vercel/sandbox/sandboxtest/internal/reply"
)

// The host names that the platform's clients use. A request with one of them was sent
// here on purpose by the client's user: Vercel controls the DNS of these names, so nobody
// else can point them here.
const (
	platformHost    = "vercel.com"     // the API below /api
	platformAPIHost = "api.vercel.com" // the API at the root
	routesHost      = ".vercel.run"    // ports, by the subdomain of their route
)

// apiPath returns the path of a request below the API's base URL, or false if the request
// is not for the API.
func apiPath(r *http.Request) (string, bool) {
	if hostName(r.Host) == platformAPIHost {
		return r.URL.EscapedPath(), true
	}
	return strings.CutPrefix(r.URL.EscapedPath(), "/api")
}

// serveRoute passes a request for a host below .vercel.run to the port of a sandbox whose
// route has that subdomain.
func (s *Server) serveRoute(w http.ResponseWriter, r *http.Request, subdomain string) {
	found := s.store.Route(subdomain)
	if found == nil {
		reply.WriteEdgeError(w, reply.Fail(http.StatusNotFound, "SANDBOX_NOT_FOUND", "There is no sandbox with the subdomain %.100q.", subdomain))
		return
	}
	found.ServeHTTP(w, r)
}

// OIDCToken returns a token in the form of the platform's OIDC tokens, for
// clients that accept nothing else (VERCEL_OIDC_TOKEN). The server accepts it
// like the token of [Server.Credentials]. It is not signed: its signature is
// the server's token.
func (s *Server) OIDCToken() string { return s.oidcToken }

// newOIDCToken returns the server's OIDC token.
func newOIDCToken(token string, now time.Time) (string, error) {
	part := func(v any) (string, error) {
		data, err := json.Marshal(v)
		return base64.RawURLEncoding.EncodeToString(data), err
	}
	header, err := part(map[string]string{"alg": "none", "typ": "JWT"})
	if err != nil {
		return "", err
	}
	claims, err := part(map[string]any{
		"iss": "https://oidc.vercel.com/emulator", "aud": "https://vercel.com/emulator",
		"sub":   "owner:emulator:project:emulator:environment:development",
		"owner": teamSlug, "owner_id": teamID, "project": "emulator", "project_id": projectID, "environment": "development",
		"iat": now.Unix(), "nbf": now.Unix(), "exp": now.AddDate(10, 0, 0).Unix(),
	})
	if err != nil {
		return "", err
	}
	return header + "." + claims + "." + base64.RawURLEncoding.EncodeToString([]byte(token)), nil
}
