package cli

import (
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/go-vercel/sandbox/cmd/sandbox/internal/console"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/line"
)

// allCommands returns all commands, the official ones first.
func (a *app) allCommands() *line.Command {
	help := &helpCommand{screen: a.screen}
	root := &line.Command{
		Name: "sandbox", Short: "Run code in isolated Linux sandboxes", Example: "run -- node -e 'console.log(1)'",
		Sub: describe(
			&listCommand{deps: a.deps}, &createCommand{deps: a.deps}, &shCommand{deps: a.deps}, &forkCommand{deps: a.deps}, &configCommand{deps: a.deps},
			&copyCommand{deps: a.deps}, &execCommand{deps: a.deps}, &connectCommand{deps: a.deps}, &stopCommand{deps: a.deps}, &removeCommand{deps: a.deps},
			&runCommand{deps: a.deps}, &snapshotCommand{deps: a.deps}, &snapshotsCommand{deps: a.deps}, &sessionsCommand{deps: a.deps}, &drivesCommand{deps: a.deps},
			&telemetryCommand{deps: a.deps}, &loginCommand{deps: a.deps}, &logoutCommand{deps: a.deps},

			&psCommand{deps: a.deps}, &logsCommand{deps: a.deps}, &waitCommand{deps: a.deps}, &killCommand{deps: a.deps},
			&readCommand{deps: a.deps}, &writeCommand{deps: a.deps}, &forwardCommand{deps: a.deps}, &urlCommand{deps: a.deps},
			&rshCommand{deps: a.deps}, &inspectCommand{deps: a.deps}, &startCommand{deps: a.deps}, &extendCommand{deps: a.deps},
			&whoamiCommand{deps: a.deps}, &doctorCommand{deps: a.deps}, &emulatorCommand{deps: a.deps}, &localCommand{deps: a.deps},
			&mcpCommand{deps: a.deps}, &completionCommand{deps: a.deps}, &versionCommand{deps: a.deps}, help,
		),
	}
	help.root = root
	cmd := root.Build(a.complete)
	cmd.SilenceErrors, cmd.SilenceUsage, cmd.PersistentPreRunE = true, true, a.prepare
	cmd.SetOut(a.screen.Out)
	cmd.SetErr(a.screen.Err)
	cmd.CompletionOptions.DisableDefaultCmd = true
	cmd.SetHelpFunc(func(of *cobra.Command, _ []string) { printPage(a.screen, func(p *helpPage) { p.write(root.Of(of)) }) })
	cmd.SetHelpCommand(root.Find("help").Cobra)
	a.globalOptions(cmd.PersistentFlags())
	line.CompleteOptions(cmd, cmd.PersistentFlags())
	withVersion(cmd)
	cmd.SetGlobalNormalizationFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		if name == "team" {
			name = "scope"
		}
		return pflag.NormalizedName(name)
	})
	return root
}

// rootCommand returns the cobra command tree.
func (a *app) rootCommand() *cobra.Command { return a.allCommands().Cobra }

func (a *app) globalOptions(flags *pflag.FlagSet) {
	in := func(group string, define func()) {
		before := map[string]bool{}
		flags.VisitAll(func(f *pflag.Flag) { before[f.Name] = true })
		define()
		flags.VisitAll(func(f *pflag.Flag) {
			if !before[f.Name] {
				if f.Annotations == nil {
					f.Annotations = map[string][]string{}
				}
				f.Annotations[groupAnnotation] = []string{group}
			}
		})
	}
	o, account := &a.screen.Opts, &a.account.Given
	in(groupScope, func() {
		line.Option(flags, &account.Token, "token", "", "pat_or_oidc", "", "A Vercel authentication token; sandbox doctor shows the default", line.ParseText)
		line.Option(flags, &account.Project, "project", "", "my-project", "", "The name or ID of the project", line.ParseText)
		line.Option(flags, &account.Scope, "scope", "", "my-team", "", "The slug or ID of the team [alias: --team]", line.ParseText)
		line.Toggle(flags, &account.Local, "local", "", "Use an emulator on this machine, without an account and without isolation; see sandbox local --help")
		line.Option(flags, &account.APIURL, "api-url", "", "url", "", "The address of the API", line.ParseText)
	})
	in(groupOutput, func() {
		line.Toggle(flags, &o.JSON, "json", "", "Write JSON")
		line.Toggle(flags, &o.Quiet, "quiet", "q", "Write names and IDs only")
		line.Choice(flags, &o.Color, "color", "", "when", "Use colors: auto, always or never", "auto", "always", "never")
		line.Toggle(flags, &o.NoInput, "no-input", "", "Never ask a question")
		line.Toggle(flags, &o.Yes, "yes", "y", "Answer questions with yes")
		line.Option(flags, &o.Debug, "debug", "", "file", "", "Log each request to standard error, or to a file", line.ParseText)
		flags.Lookup("debug").NoOptDefVal = "-"
		line.Option(flags, &account.RequestTimeout, "request-timeout", "", "duration", "", "How long to wait for the start of a response", line.ParseDuration)
	})
}

// prepare checks options that depend on each other, and applies --color. Cobra calls it
// before each command.
func (a *app) prepare(cmd *cobra.Command, args []string) error {
	o := &a.screen.Opts
	if g := &a.account.Given; g.Local && (g.APIURL != "" || g.Token != "") {
		return line.Usagef("--local needs no --api-url or --token: everything is on this machine")
	}
	if o.Color != "" {
		a.screen.SetStreams(console.ColorMode(o.Color))
	}
	if _, foreign := cmd.Annotations[line.OwnWords]; !foreign && !a.account.Completes && slices.Contains(args, "") {
		// An empty argument may come from an unset variable. It must not select anything.
		return line.Usagef("an argument is empty")
	}
	if o.Quiet && o.JSON {
		return line.Usagef("--json and --quiet exclude each other")
	}
	if o.Structured() && cmd.Name() == "list" {
		if err := a.checkFilters(cmd.Flags()); err != nil {
			return err
		}
	}
	a.screen.Started = true
	return nil
}

// describer is a command that describes itself.
type describer interface{ command() *line.Command }

func describe(all ...describer) []*line.Command {
	made := make([]*line.Command, len(all))
	for i, d := range all {
		made[i] = d.command()
	}
	return made
}
