package sandboxtest

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/go-vercel/sandbox/sandboxtest/internal/firewall"
	"github.com/go-vercel/sandbox/sandboxtest/internal/reply"
)

// tokenPrefix makes the emulator's tokens recognizable wherever they appear.
const tokenPrefix = "emu_"

// newServerToken returns a token that can't be guessed.
func newServerToken() string { return tokenPrefix + rand.Text() }

// HostName is the name by which a sandbox, and the sources that it is created
// from, reach servers on the loopback interface of this machine: tests' servers
// and the emulator itself. It works in every mode; in [Folder] mode only in the
// arguments and the environment of commands.
const HostName = firewall.HostName

// authorize refuses requests without the token, requests from web pages, and requests for a
// project of another team. The token alone does not keep web pages out. After a browser has
// loaded a page, the page's owner can point the page's host name at this machine. The
// browser then lets the page send any request to this server. But such a request shows the
// page's name, in Host or in Origin.
func (s *Server) authorize(r *http.Request) *reply.Error {
	if failure := s.authorizeBy(r, s.opts.Token, s.oidcToken); failure != nil {
		return failure
	}
	query := r.URL.Query()
	for _, name := range []string{"projectId", "project"} { // of objects, and of listings
		if failure := checkProject(r, query.Get(name)); failure != nil {
			return failure
		}
	}
	return nil
}

// checkProject refuses an invalid project, or one of another team.
func checkProject(r *http.Request, project string) *reply.Error {
	if strings.ContainsAny(project, "/\\ ") {
		return reply.Invalid("`projectId` should be the ID of a project.")
	}
	return wrongTeam(r, project)
}

// wrongTeam returns an error if a request looks for the emulator's own project in another
// team. Any other project exists in any team.
func wrongTeam(r *http.Request, project string) *reply.Error {
	query := r.URL.Query()
	team, slug := query.Get("teamId"), query.Get("slug")
	if project != projectID || (team == "" || team == teamID) && (slug == "" || slug == teamSlug) {
		return nil
	}
	return reply.Fail(http.StatusForbidden, "forbidden", "Not authorized")
}

// authorizeBy checks the Host, the Origin and the token of a request. It accepts any of
// tokens.
func (s *Server) authorizeBy(r *http.Request, tokens ...string) *reply.Error {
	if !s.knownHost(r.Host) {
		return forbidden("invalidHost", "The emulator is not reached by the name %.100q. Use its address, localhost, or a name in Options.Hosts.", r.Host)
	}
	if origin := r.Header.Get("Origin"); origin != "" {
		return forbidden("invalidOrigin", "The emulator takes no requests from web pages (Origin: %.100q).", origin)
	}
	token := bearer(r)
	if token == "" {
		return forbidden("missingToken", "The request is missing an authentication token")
	}
	if !slices.ContainsFunc(tokens, func(own string) bool { return sameSecret(token, own) }) {
		return forbidden("invalidToken", "Not authorized")
	}
	return nil
}

// bearer returns the token of a request, or "".
func bearer(r *http.Request) string {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}

// resolveProject checks the project that a request names, and returns it. If the request
// names none and has the OIDC token, it returns the project of that token.
func (c *call) resolveProject(named string) (string, error) {
	if named == "" && sameSecret(bearer(c.r), c.s.oidcToken) {
		named = projectID
	}
	if failure := checkProject(c.r, named); failure != nil {
		return "", failure
	}
	return named, nil
}

// forbidden returns a 403.
func forbidden(kind, format string, args ...any) *reply.Error {
	e := reply.Fail(http.StatusForbidden, "forbidden", format, args...)
	e.Extra = map[string]any{kind: true}
	return e
}

// sameSecret compares two secrets. The time that it takes reveals nothing about them, not
// even their lengths.
func sameSecret(a, b string) bool {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1
}

// knownHost reports whether a Host header has an address, one of the server's own names, or
// one of Vercel's. The owner of a web page can't point any of these at this machine.
func (s *Server) knownHost(host string) bool {
	name := hostName(host)
	if _, err := netip.ParseAddr(name); err == nil {
		return true
	}
	switch name {
	case "localhost", HostName, platformHost, platformAPIHost:
		return true
	}
	return strings.HasSuffix(name, ".localhost") ||
		slices.ContainsFunc(s.opts.Hosts, func(own string) bool { return strings.EqualFold(own, name) })
}

// hostName returns a Host header without its port, normalized.
func hostName(host string) string {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	return strings.TrimSuffix(strings.ToLower(strings.Trim(host, "[]")), ".")
}
