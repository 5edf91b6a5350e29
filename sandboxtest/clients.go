package sandboxtest

import (
	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/auth"
)

// The team and project of Credentials.
const (
	teamID    = "team_emulator"
	teamSlug  = "emulator"
	projectID = "prj_emulator"
)

// Credentials returns the credentials that the server accepts: its token, and the
// emulator's own team and project. The token is [Options].Token, or one generated
// for this server. As on the platform, another team gets a 403 for that project.
// Any other project is created by using it, in any team. A client that has only
// the token finds that team and the default project, which it may have to create.
func (s *Server) Credentials() auth.Credentials {
	return auth.Credentials{Token: s.opts.Token, TeamID: teamID, ProjectID: projectID}
}

// Environ returns environment variables in the form of [os.Environ]. With them a program in
// another process uses this server, with [Server.Credentials], and its control API if there
// is one. This module's clients read the variables, and so do other tools that know them:
//
//	cmd.Env = append(os.Environ(), srv.Environ()...)
func (s *Server) Environ() []string {
	c := s.Credentials()
	env := []string{
		// The user's own values would take precedence over the server's.
		"VERCEL_AUTH_TOKEN=", "VERCEL_OIDC_TOKEN_FILE=", "VERCEL_OIDC_TOKEN=", "SANDBOX_TOKEN=", "SANDBOX_SCOPE=", "SANDBOX_PROJECT=",
		"VERCEL_SANDBOX_BASE_URL=" + s.URL,
		"VERCEL_TOKEN=" + c.Token,
		"VERCEL_TEAM_ID=" + c.TeamID,
		"VERCEL_PROJECT_ID=" + c.ProjectID,
	}
	if s.opts.ControlToken != "" {
		env = append(env, "SANDBOX_CONTROL_URL="+s.ControlURL(), "SANDBOX_CONTROL_TOKEN="+s.opts.ControlToken)
	}
	return env
}

// Client returns a client of the server, with [Server.Credentials]. It always
// returns the same one, whose connections Close closes.
func (s *Server) Client() *sandbox.Client { return s.client }

func (s *Server) openClient() (err error) {
	s.client, err = sandbox.NewClient(&sandbox.ClientOptions{
		Credentials: auth.Static(s.Credentials()),
		BaseURL:     s.URL,
	})
	return err
}
