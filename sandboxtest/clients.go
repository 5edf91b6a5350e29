package sandboxtest

import (
	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/auth"
)

// The team and project of Credentials.
const (
	teamID    = "team_emulator"
	projectID = "prj_emulator"
)

// Credentials returns the credentials that the server accepts: its token, which
// is Options.Token or one made up for this server, with a team and a project of
// the emulator's own. Another project is made by naming it.
func (s *Server) Credentials() auth.Credentials {
	return auth.Credentials{Token: s.opts.Token, TeamID: teamID, ProjectID: projectID}
}

// Client gives a client of the server, with Credentials. It is always the
// same one, whose connections Close closes.
func (s *Server) Client() *sandbox.Client { return s.client }

func (s *Server) openClient() (err error) {
	s.client, err = sandbox.NewClient(&sandbox.ClientOptions{
		Credentials: auth.Static(s.Credentials()),
		BaseURL:     s.URL,
	})
	return err
}
