package cli

import (
	"fmt"
	"maps"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"github.com/go-vercel/sandbox/cmd/sandbox/internal/settings"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/table"
	"github.com/go-vercel/sandbox/internal/oidc"
)

func (a *app) useCommand() *cobra.Command {
	var unset bool
	cmd := &cobra.Command{
		Use: "use [name]", Short: "Choose the active sandbox of this folder", GroupID: groupTools, Args: cobra.MaximumNArgs(1),
		Long: "Choose the active sandbox of this folder and those below it. Commands that take one name use it if you give none, or @. " +
			"Without a name, the present choice is shown.",
	}
	toggle(cmd.Flags(), &unset, "unset", "", "Forget the choice")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		dirs, err := a.dirs()
		if err != nil {
			return err
		}
		dir, err := os.Getwd()
		if err != nil {
			return err
		}
		switch {
		case unset:
			return dirs.SetActive(dir, "")
		case len(args) == 1:
			sb, err := a.get(cmd.Context(), args[0], false)
			if err != nil {
				return err
			}
			fmt.Fprintf(a.err, "The active sandbox of %s is %s.\n", dir, sb.Name())
			return dirs.SetActive(dir, sb.Name())
		}
		name, err := dirs.Active(dir)
		if err != nil {
			return err
		}
		if name == "" {
			return &exitError{code: exitNotFound, err: withHint(fmt.Errorf("there is no active sandbox"), "choose one with: sandbox use NAME")}
		}
		_, err = fmt.Fprintln(a.shown(), name)
		return err
	}
	return cmd
}

func (a *app) profileCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "profile", Short: "Manage profiles: teams and projects by a name", GroupID: groupTools}
	cmd.AddCommand(a.profileListCommand(), a.profileSetCommand(), a.profileUseCommand(), a.profileRemoveCommand())
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

func (a *app) profileListCommand() *cobra.Command {
	return &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List the profiles", Args: positionals(),
		RunE: func(*cobra.Command, []string) error {
			dirs, err := a.dirs()
			if err != nil {
				return err
			}
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
			return a.print(ans)
		},
	}
}

// changeConfig changes config.toml.
func (a *app) changeConfig(change func(*settings.Config) error) error {
	dirs, err := a.dirs()
	if err != nil {
		return err
	}
	config, err := dirs.ReadConfig()
	if err != nil {
		return err
	}
	if err := change(&config); err != nil {
		return err
	}
	return dirs.WriteConfig(config)
}

func (a *app) profileSetCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "set <name>", Short: "Keep --scope, --project, --api-url and --token under a name", Args: positionals("name"),
		Example: "  $ sandbox profile set work --scope my-team --project my-project\n  $ sandbox profile use work",
	}
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		return a.changeConfig(func(c *settings.Config) error {
			p := c.Profiles[args[0]]
			p.Team, p.Project = first(a.opts.scope, p.Team), first(a.opts.project, p.Project)
			p.APIURL, p.Token = first(a.opts.apiURL, p.APIURL), first(a.opts.token, p.Token)
			if c.Profiles == nil {
				c.Profiles = map[string]settings.Profile{}
			}
			c.Profiles[args[0]] = p
			return nil
		})
	}
	return cmd
}

func noProfile(c *settings.Config, name string) error {
	if _, ok := c.Profiles[name]; !ok {
		return &exitError{code: exitNotFound, err: fmt.Errorf("there is no profile %s", quote(name))}
	}
	return nil
}

func (a *app) profileUseCommand() *cobra.Command {
	return &cobra.Command{
		Use: "use <name>", Short: "Use a profile from now on, or none with -", Args: positionals("name"),
		RunE: func(_ *cobra.Command, args []string) error {
			return a.changeConfig(func(c *settings.Config) error {
				if args[0] == "-" {
					c.Profile = ""
					return nil
				}
				c.Profile = args[0]
				return noProfile(c, args[0])
			})
		},
	}
}

func (a *app) profileRemoveCommand() *cobra.Command {
	return &cobra.Command{
		Use: "remove <name>", Aliases: []string{"rm"}, Short: "Remove a profile", Args: positionals("name"),
		RunE: func(_ *cobra.Command, args []string) error {
			return a.changeConfig(func(c *settings.Config) error {
				if c.Profile == args[0] {
					c.Profile = ""
				}
				err := noProfile(c, args[0])
				delete(c.Profiles, args[0])
				return err
			})
		},
	}
}

type whoamiView struct {
	Team    string `json:"team"`
	Project string `json:"project"`
	Source  string `json:"source"`
	Expires string `json:"expires,omitempty"`
}

func (a *app) whoamiCommand() *cobra.Command {
	return &cobra.Command{
		Use: "whoami", Short: "Show the team and project in use, and where the token comes from", GroupID: groupTools, Args: positionals(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if _, err := a.connect(cmd.Context()); err != nil {
				return err
			}
			v := whoamiView{Team: a.scope.TeamID, Project: a.scope.ProjectID, Source: a.source}
			if at, ok := oidc.Expiry(a.scope.Token); ok {
				v.Expires = at.UTC().Format("2006-01-02T15:04:05Z")
			}
			return a.print(output{doc: v, names: []string{v.Team + "/" + v.Project}, table: func() *table.Table {
				t := table.New("TEAM", "PROJECT", "TOKEN FROM", "EXPIRES")
				t.Row(v.Team, v.Project, v.Source, dash(v.Expires))
				return t
			}})
		},
	}
}
