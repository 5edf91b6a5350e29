package cli

import (
	"github.com/spf13/cobra"

	"github.com/go-vercel/sandbox/cmd/sandbox/internal/table"
	"github.com/go-vercel/sandbox/internal/oidc"
)

type whoamiView struct {
	Team    string `json:"team"`
	Project string `json:"project"`
	Source  string `json:"source"`
	Expires string `json:"expires,omitempty"`
}

type whoamiCommand struct{ place }

func (c *whoamiCommand) command() *command {
	return &command{
		name: "whoami", near: []string{"account", "who"}, title: titleTools, short: "Show the team and project in use, and where the token comes from",
		example: "whoami", doc: whoamiView{}, run: c.run,
	}
}

func (c *whoamiCommand) run(cmd *cobra.Command, _ []string) error {
	if _, err := c.account.connect(cmd.Context()); err != nil {
		return err
	}
	v := whoamiView{Team: c.account.scope.TeamID, Project: c.account.scope.ProjectID, Source: c.screen.source}
	if at, ok := oidc.Expiry(c.account.scope.Token); ok {
		v.Expires = at.UTC().Format("2006-01-02T15:04:05Z")
	}
	return c.screen.print(output{doc: v, names: []string{v.Team + "/" + v.Project}, table: func() *table.Table {
		t := table.New("TEAM", "PROJECT", "TOKEN FROM", "EXPIRES")
		t.Least = []string{"EXPIRES"}
		t.Row(v.Team, v.Project, v.Source, dash(v.Expires))
		return t
	}})
}
