package sandboxtest

import (
	"net/http"
	"net/url"
	"strings"
)

// serveScope serves what clients that have a token alone ask, to find their team
// and project. It reports whether the request is one of those.
func (s *Server) serveScope(w http.ResponseWriter, r *http.Request, escapedPath string) bool {
	project := ""
	var found any
	switch rest, isProject := strings.CutPrefix(escapedPath, "/v2/projects/"); {
	case r.Method != http.MethodGet:
		return false
	case escapedPath == "/v2/user":
		found = map[string]any{"user": map[string]string{"defaultTeamId": teamID, "username": teamSlug}}
	case escapedPath == "/v2/teams/"+teamID:
		found = map[string]string{"id": teamID, "slug": teamSlug}
	case isProject:
		name, err := url.PathUnescape(rest)
		if err != nil {
			return false
		}
		project, found = name, map[string]string{"id": name, "name": name}
	default:
		return false
	}
	failure := s.authorize(r)
	if failure == nil {
		failure = wrongTeam(r, project)
	}
	if failure != nil {
		writeError(w, failure)
	} else {
		writeJSON(w, http.StatusOK, found)
	}
	return true
}
