package sandboxtest

import (
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/go-vercel/sandbox/sandboxtest/internal/reply"
)

// defaultProject is the project of clients that name none. Unlike other projects, it does
// not exist before a client has created or used it.
const defaultProject = "vercel-sandbox-default-project"

// serveScope responds to the requests by which a client that has only a token finds its
// team and project. It reports whether the request is one of them.
func (s *Server) serveScope(w http.ResponseWriter, r *http.Request, escapedPath string) bool {
	handle := s.scopeHandler(r, escapedPath)
	if handle == nil {
		return false
	}
	failure := s.authorize(r)
	var found any
	if failure == nil {
		found, failure = handle()
	}
	if failure != nil {
		reply.WriteError(w, failure)
	} else {
		reply.WriteJSON(w, http.StatusOK, found)
	}
	return true
}

// scopeHandler returns the function that handles a request about a user, team or project.
// It returns nil for any other request.
func (s *Server) scopeHandler(r *http.Request, escapedPath string) func() (any, *reply.Error) {
	team := map[string]any{
		"id": teamID, "slug": teamSlug, "updatedAt": 1,
		"membership": map[string]string{"role": "OWNER"}, "billing": map[string]string{"plan": "hobby"},
	}
	always := func(v any) func() (any, *reply.Error) { return func() (any, *reply.Error) { return v, nil } }
	rest, isProject := strings.CutPrefix(escapedPath, "/v2/projects/")
	switch {
	case r.Method == http.MethodPost && escapedPath == "/v11/projects":
		return func() (any, *reply.Error) { return s.createProject(r) }
	case r.Method != http.MethodGet:
	case escapedPath == "/v2/user":
		return always(map[string]any{"user": map[string]string{"defaultTeamId": teamID, "username": teamSlug}})
	case escapedPath == "/v2/teams":
		return always(map[string]any{"teams": []any{team}, "pagination": map[string]any{"count": 1, "next": nil}})
	case escapedPath == "/v2/teams/"+teamID, escapedPath == "/v2/teams/"+teamSlug:
		return always(team)
	case isProject:
		name, err := url.PathUnescape(rest)
		if err != nil {
			return nil
		}
		return func() (any, *reply.Error) { return s.findProject(r, name) }
	}
	return nil
}

// findProject handles the look-up of a project. Every project exists, except the default
// one until it is created or used.
func (s *Server) findProject(r *http.Request, name string) (any, *reply.Error) {
	if failure := wrongTeam(r, projectID); failure != nil {
		return nil, failure
	}
	if name == defaultProject && !s.hasDefaultProject.Load() && !s.store.Uses(name) {
		return nil, reply.NotFound("Project not found.")
	}
	return map[string]string{"id": name, "name": name}, nil
}

// createProject creates a project. All except the default one exist already.
func (s *Server) createProject(r *http.Request) (any, *reply.Error) {
	if failure := wrongTeam(r, projectID); failure != nil {
		return nil, failure
	}
	var body struct{ Name string }
	if err := json.NewDecoder(io.LimitReader(r.Body, keptBody)).Decode(&body); err != nil || body.Name == "" {
		return nil, reply.BadRequest("The project has no name.")
	}
	if body.Name == defaultProject {
		s.hasDefaultProject.Store(true)
	}
	return map[string]string{"id": body.Name, "name": body.Name}, nil
}
