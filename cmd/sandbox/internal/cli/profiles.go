package cli

import (
	"fmt"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"github.com/go-vercel/sandbox/cmd/sandbox/internal/settings"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/table"
	"github.com/go-vercel/sandbox/internal/oidc"
)

type profileCommand struct{ app *app }

func (c *profileCommand) command() *cobra.Command {
	cmd := &cobra.Command{Use: "profile", Short: "Manage profiles: teams and projects by a name", GroupID: groupTools}
	cmd.AddCommand(commands(&profileListCommand{app: c.app}, &profileSetCommand{app: c.app}, &profileUseCommand{app: c.app}, &profileRemoveCommand{app: c.app})...)
	return group(cmd)
}

type profileView struct {
	Name    string `json:"name"`
	Active  bool   `json:"active"`
	Team    string `json:"team,omitempty"`
	Project string `json:"project,omitempty"`
	APIURL  string `json:"apiUrl,omitempty"`
	Token   bool   `json:"token"`
}

type profileListCommand struct{ app *app }

func (c *profileListCommand) command() *cobra.Command {
	return &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List the profiles", Args: positionals(),
		RunE: c.run,
	}
}

func (c *profileListCommand) run(*cobra.Command, []string) error {
	dirs := c.app.dirs()
	config, err := dirs.ReadConfig()
	if err != nil {
		return err
	}
	var views []profileView
	for _, name := range slices.Sorted(maps.Keys(config.Profiles)) {
		p := config.Profiles[name]
		views = append(views, profileView{name, name == config.Profile, p.Team, p.Project, p.APIURL, p.Token != ""})
	}
	ans := list(views, func(v profileView) string { return v.Name }, func(views []profileView) *table.Table {
		t := table.New("NAME", "ACTIVE", "TEAM", "PROJECT", "TOKEN")
		mark := map[bool]string{true: "yes", false: "-"}
		for _, v := range views {
			t.Row(v.Name, mark[v.Active], dash(v.Team), dash(v.Project), mark[v.Token])
		}
		return t
	})
	ans.empty = "No profiles."
	return c.app.print(ans)
}

// changeProfile changes what config.toml says of a profile, which it names.
func (a *app) changeProfile(name string, change func(*settings.Config) error) error {
	dirs := a.dirs()
	if err := dirs.ChangeConfig(change); err != nil {
		return err
	}
	if name == "-" {
		return a.result([]string{})
	}
	return a.result([]string{name}, name)
}

type profileSetCommand struct{ app *app }

func (c *profileSetCommand) command() *cobra.Command {
	cmd := &cobra.Command{
		Use: "set <name>", Short: "Keep --scope, --project, --api-url and --token under a name", Args: positionals("name"),
		Example: "  $ sandbox profile set work --scope my-team --project my-project\n  $ sandbox profile use work",
	}
	cmd.RunE = c.run
	return cmd
}

func (c *profileSetCommand) run(_ *cobra.Command, args []string) error {
	return c.app.changeProfile(args[0], func(f *settings.Config) error {
		p := f.Profiles[args[0]]
		p.Team, p.Project = first(c.app.opts.scope, p.Team), first(c.app.opts.project, p.Project)
		p.APIURL, p.Token = first(c.app.opts.apiURL, p.APIURL), first(c.app.opts.token, p.Token)
		if f.Profiles == nil {
			f.Profiles = map[string]settings.Profile{}
		}
		f.Profiles[args[0]] = p
		return nil
	})
}

func noProfile(f *settings.Config, name string) error {
	if _, ok := f.Profiles[name]; !ok {
		return &exitError{code: exitNotFound, err: fmt.Errorf("there is no profile %s", quote(name))}
	}
	return nil
}

type profileUseCommand struct{ app *app }

func (c *profileUseCommand) command() *cobra.Command {
	return &cobra.Command{
		Use: "use <name>", Short: "Use a profile from now on, or none with -", Args: positionals("name"),
		RunE: c.run,
	}
}

func (c *profileUseCommand) run(_ *cobra.Command, args []string) error {
	return c.app.changeProfile(args[0], func(f *settings.Config) error {
		if args[0] == "-" {
			f.Profile = ""
			return nil
		}
		f.Profile = args[0]
		return noProfile(f, args[0])
	})
}

type profileRemoveCommand struct{ app *app }

func (c *profileRemoveCommand) command() *cobra.Command {
	return &cobra.Command{
		Use: "remove <name>", Aliases: []string{"rm"}, Short: "Remove a profile", Args: positionals("name"),
		RunE: c.run,
	}
}

func (c *profileRemoveCommand) run(_ *cobra.Command, args []string) error {
	return c.app.changeProfile(args[0], func(f *settings.Config) error {
		if f.Profile == args[0] {
			f.Profile = ""
		}
		err := noProfile(f, args[0])
		delete(f.Profiles, args[0])
		return err
	})
}

type whoamiView struct {
	Team    string `json:"team"`
	Project string `json:"project"`
	Source  string `json:"source"`
	Expires string `json:"expires,omitempty"`
}

type whoamiCommand struct{ app *app }

func (c *whoamiCommand) command() *cobra.Command {
	return &cobra.Command{
		Use: "whoami", Short: "Show the team and project in use, and where the token comes from", GroupID: groupTools, Args: positionals(),
		RunE: c.run,
	}
}

func (c *whoamiCommand) run(cmd *cobra.Command, _ []string) error {
	if _, err := c.app.connect(cmd.Context()); err != nil {
		return err
	}
	v := whoamiView{Team: c.app.scope.TeamID, Project: c.app.scope.ProjectID, Source: c.app.source}
	if at, ok := oidc.Expiry(c.app.scope.Token); ok {
		v.Expires = at.UTC().Format("2006-01-02T15:04:05Z")
	}
	return c.app.print(output{doc: v, names: []string{v.Team + "/" + v.Project}, table: func() *table.Table {
		t := table.New("TEAM", "PROJECT", "TOKEN FROM", "EXPIRES")
		t.Least = []string{"EXPIRES"}
		t.Row(v.Team, v.Project, v.Source, dash(v.Expires))
		return t
	}})
}
