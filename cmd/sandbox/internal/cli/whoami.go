package cli

import (
	"github.com/spf13/cobra"

	"github.com/go-vercel/sandbox/cmd/sandbox/internal/line"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/screen"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/table"
	"github.com/go-vercel/sandbox/internal/oidc"
)

type whoamiView struct {
	Team    string `json:"team"`
	Project string `json:"project"`
	Source  string `json:"source"`
	Expires string `json:"expires,omitempty"`
}

type whoamiCommand struct{ deps }

func (c *whoamiCommand) command() *line.Command {
	return &line.Command{
		Name: "whoami", Near: []string{"account", "who"}, Title: titleTools, Short: "Show the team and project in use, and where the token comes from",
		Example: "whoami", Doc: whoamiView{}, Run: c.run,
	}
}

func (c *whoamiCommand) run(cmd *cobra.Command, _ []string) error {
	if _, err := c.account.Connect(cmd.Context()); err != nil {
		return err
	}
	v := whoamiView{Team: c.account.Scope.TeamID, Project: c.account.Scope.ProjectID, Source: c.screen.Source}
	if at, ok := oidc.Expiry(c.account.Scope.Token); ok {
		v.Expires = at.UTC().Format("2006-01-02T15:04:05Z")
	}
	return c.screen.Print(screen.Output{Doc: v, Names: []string{v.Team + "/" + v.Project}, Table: func() *table.Table {
		t := table.New("TEAM", "PROJECT", "TOKEN FROM", "EXPIRES")
		t.Least = []string{"EXPIRES"}
		t.Row(v.Team, v.Project, v.Source, orDash(v.Expires))
		return t
	}})
}
