package sandboxtest

// The team and project of Credentials.
const (
	teamID    = "team_emulator"
	projectID = "prj_emulator"
)

// Credentials are what a client may present to the server.
type Credentials struct{ Token, TeamID, ProjectID string }

// Credentials gives credentials that the server takes: Options.Token, or any
// token when it is empty, with a team and a project of the emulator's own.
// Sandboxes of other projects are made by naming them.
func (s *Server) Credentials() Credentials {
	c := Credentials{Token: s.opts.Token, TeamID: teamID, ProjectID: projectID}
	if c.Token == "" {
		c.Token = "emulator"
	}
	return c
}

// clients are what Client gives, for Close.
type clients struct{}

func (c *clients) close() {}
