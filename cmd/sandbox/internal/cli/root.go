package cli

import (
	"context"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/go-vercel/sandbox/cmd/sandbox/internal/console"
)

// version is set by the release build.
var version string

// Version returns the version of the program.
func Version() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return strings.TrimPrefix(info.Main.Version, "v")
	}
	return "devel"
}

// The groups of commands on the main page.
const (
	groupFiles    = "files"
	groupCommands = "commands"
	groupManage   = "manage"
	groupTools    = "tools"
)

// The commands stand in the order in which they are added.
func init() { cobra.EnableCommandSorting = false }

func (a *app) rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:           "sandbox",
		Short:         "Run code in isolated Linux sandboxes",
		SilenceErrors: true, SilenceUsage: true,
		Example: `– Create a sandbox and start a coding agent in it

  $ sandbox create claude

– Create a sandbox and start a shell

  $ sandbox sh

– Run a command in a new sandbox

  $ sandbox run -- node -e "console.log('hello')"

– Run a command on this machine, without an account

  $ sandbox --local run -- python3 -c 'print(1)'

– Copy a directory into a sandbox

  $ sandbox cp ./app my-sandbox:app`,
		PersistentPreRunE: a.settle,
	}
	root.SetOut(a.out)
	root.SetErr(a.err)
	root.CompletionOptions.DisableDefaultCmd = true
	root.SetHelpFunc(func(cmd *cobra.Command, _ []string) { a.help(cmd) })
	root.AddGroup(
		&cobra.Group{ID: groupCommands, Title: "Commands in a sandbox:"},
		&cobra.Group{ID: groupFiles, Title: "Files and ports:"},
		&cobra.Group{ID: groupManage, Title: "Manage:"},
		&cobra.Group{ID: groupTools, Title: "Tools:"},
	)
	a.globalOptions(root.PersistentFlags())
	a.addCommands(root)
	help := (&helpCommand{app: a}).command()
	root.AddCommand(help)
	root.SetHelpCommand(help)
	withVersion(group(root))
	withHelp(root)
	root.SetGlobalNormalizationFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		if name == "team" {
			name = "scope"
		}
		return pflag.NormalizedName(name)
	})
	return root
}

// withHelp adds the option --help to a command and those below it.
func withHelp(cmd *cobra.Command) {
	cmd.Flags().BoolP("help", "h", false, "Show this page") // InitDefaultHelpFlag would merge the options of each
	for _, c := range cmd.Commands() {
		withHelp(c)
	}
}

// withVersion adds the option --version, which writes the number alone. For that
// cobra's own needs a template, and with the package of templates the linker
// keeps methods that nothing calls: a tenth of the program.
func withVersion(root *cobra.Command) {
	number := root.Flags().BoolP("version", "v", false, "Show the version alone")
	run := root.RunE
	root.RunE = func(cmd *cobra.Command, args []string) error {
		if !*number {
			return run(cmd, args)
		}
		_, err := fmt.Fprintln(cmd.OutOrStdout(), Version())
		return err
	}
}

// command is a command with its options, which are its fields.
type command interface{ command() *cobra.Command }

// commands are made ready for cobra.
func commands(all ...command) []*cobra.Command {
	made := make([]*cobra.Command, len(all))
	for i, c := range all {
		made[i] = c.command()
	}
	return made
}

// addCommands adds all commands, the official ones first.
func (a *app) addCommands(root *cobra.Command) {
	root.AddCommand(commands(
		&listCommand{app: a}, &createCommand{app: a}, &shCommand{app: a}, &forkCommand{app: a}, &configCommand{app: a},
		&copyCommand{app: a}, &execCommand{app: a}, &connectCommand{app: a}, &stopCommand{app: a}, &removeCommand{app: a},
		&runCommand{app: a}, &snapshotCommand{app: a}, &snapshotsCommand{app: a}, &sessionsCommand{app: a}, &drivesCommand{app: a},
		&telemetryCommand{app: a}, &loginCommand{app: a}, &logoutCommand{app: a},

		&psCommand{app: a}, &logsCommand{app: a}, &waitCommand{app: a}, &killCommand{app: a},
		&readCommand{app: a}, &writeCommand{app: a}, &forwardCommand{app: a}, &urlCommand{app: a},
		&rshCommand{app: a}, &inspectCommand{app: a}, &startCommand{app: a}, &extendCommand{app: a},
		&whoamiCommand{app: a}, &doctorCommand{app: a}, &emulatorCommand{app: a}, &localCommand{app: a},
		&mcpCommand{app: a}, &completionCommand{app: a}, &versionCommand{app: a},
	)...)
	(&completer{a}).complete(root)
}

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
	o := &a.opts
	in(groupScope, func() {
		option(flags, &o.token, "token", "", "pat_or_oidc", "", "A Vercel authentication token; the default is the first that the documentation lists", parseText)
		option(flags, &o.project, "project", "", "my-project", "", "The name or ID of the project", parseText)
		option(flags, &o.scope, "scope", "", "my-team", "", "The slug or ID of the team [alias: --team]", parseText)
		toggle(flags, &o.local, "local", "", "Run everything on an emulator on this machine, without an account and without isolation; see sandbox local")
		option(flags, &o.apiURL, "api-url", "", "url", "", "The address of the API", parseText)
	})
	in(groupOutput, func() {
		toggle(flags, &o.json, "json", "", "Write JSON")
		toggle(flags, &o.quiet, "quiet", "q", "Write names and IDs only")
		choice(flags, &o.color, "color", "", "when", "Use colors: auto, always or never", "auto", "always", "never")
		toggle(flags, &o.noInput, "no-input", "", "Never ask a question")
		toggle(flags, &o.yes, "yes", "y", "Answer questions with yes")
		option(flags, &o.debug, "debug", "", "file", "", "Write what is done, request by request, to standard error, or to a file", parseText)
		flags.Lookup("debug").NoOptDefVal = "-"
		option(flags, &o.requestTimeout, "request-timeout", "", "duration", "", "Give up a request that takes longer", parseDuration)
	})
}

// settle makes of the options what they mean together.
func (a *app) settle(cmd *cobra.Command, args []string) error {
	o := &a.opts
	a.path = cmd.CommandPath()
	if o.local && (o.apiURL != "" || o.token != "") {
		return usagef("--local needs no --api-url or --token: everything is on this machine")
	}
	if o.color != "" {
		a.setStreams(console.ColorMode(o.color))
	}
	if _, foreign := cmd.Annotations[ownWords]; !foreign && !a.completes && slices.Contains(args, "") {
		// A variable that is not set must not choose what stands for nothing.
		return usagef("an argument is empty")
	}
	if o.quiet && o.json {
		return usagef("--json and --quiet exclude each other")
	}
	if o.structured() && cmd.Name() == "list" {
		if err := a.narrows(cmd.Flags()); err != nil {
			return err
		}
	}
	a.started = true
	return nil
}

// nearestOption is the option of a command whose name is most like another one.
func nearestOption(cmd *cobra.Command, name string) string {
	best, least := "", 3
	look := func(f *pflag.Flag) {
		d := editDistance(name, f.Name)
		if strings.HasPrefix(f.Name, name) && len(name) > 2 {
			d = 1
		}
		if d < least {
			best, least = f.Name, d
		}
	}
	cmd.Flags().VisitAll(look)
	return best
}

// commandsWith names the commands that have an option.
func commandsWith(root *cobra.Command, option string) []string {
	var names []string
	var visit func(*cobra.Command)
	visit = func(c *cobra.Command) {
		if f := c.LocalNonPersistentFlags().Lookup(option); f != nil && c != root && len(names) < 4 {
			names = append(names, c.CommandPath())
		}
		for _, sub := range c.Commands() {
			visit(sub)
		}
	}
	visit(root)
	return names
}

// maxSuggestions is how many commands are named in the place of one that is none.
const maxSuggestions = 3

// otherOptions say what there is in the place of options that other programs have.
var otherOptions = map[string]string{
	"memory": "--vcpus chooses it: each has 2048 MB", "running": "--status running lists those that run", "stopped": "--status stopped lists those that are stopped",
	"filter": "--status, --tag and --name-prefix filter", "volume": "--mount attaches a drive", "publish": "--publish-port publishes a port",
}

// group makes a command that only holds others show its help, and refuse what is
// no command of it.
func group(cmd *cobra.Command) *cobra.Command {
	cmd.Args = cobra.ArbitraryArgs
	cmd.SuggestionsMinimumDistance = 2
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return cmd.Help()
		}
		e := &usageError{message: fmt.Sprintf("%s is not a command of %s", quote(args[0]), cmd.CommandPath()), hint: moreAbout(cmd)}
		if len(args) > 1 && child(cmd, args[1]) != nil && cmd != cmd.Root() {
			args[0], args[1] = args[1], args[0]
			e.hint = "did you mean: " + cmd.CommandPath() + " " + shellWords(args)
		} else if near := suggestions(cmd, strings.ToLower(strings.TrimSpace(args[0]))); len(near) > 0 {
			e.hint = "did you mean " + strings.Join(near, " or ") + "? " + e.hint
		}
		return e
	}
	return cmd
}

// otherWords are what other programs call some commands.
var otherWords = map[string][]string{
	"remove": {"delete", "del", "destroy", "terminate"}, "list": {"get", "status"}, "create": {"new", "launch", "up"}, "get-or-create": {"create", "new", "add"},
	"inspect": {"show", "describe", "info", "get"}, "get": {"show", "inspect"}, "copy": {"upload", "download", "push", "pull", "put", "scp"},
	"port-forward": {"forward", "proxy", "tunnel"}, "snapshot": {"save", "commit"}, "start": {"resume"}, "stop": {"pause", "down"},
	"drives": {"volumes", "volume"}, "config": {"set", "update"}, "login": {"auth", "signin"}, "logout": {"signout"}, "whoami": {"account", "who"},
	"connect": {"console", "enter", "terminal"}, "rsh": {"rsync"}, "delete": {"destroy"}, "doctor": {"check", "diagnose"},
}

// suggestions are the commands whose name, or another name of theirs, is like a
// word.
func suggestions(cmd *cobra.Command, word string) (near []string) {
	if word == "" {
		return nil
	}
	for _, c := range cmd.Commands() {
		if slices.Contains(otherWords[c.Name()], word) {
			near = append(near, c.Name())
		}
	}
	for distance := range cmd.SuggestionsMinimumDistance + 1 {
		if len(near) > 0 {
			break // what is further off is not meant
		}
		for _, c := range cmd.Commands() {
			like := func(name string) bool {
				d := editDistance(word, name)
				if abbreviates(word, name) {
					d = min(d, 1)
				}
				return d == distance
			}
			if c.IsAvailableCommand() && !slices.Contains(near, c.Name()) && (like(c.Name()) || slices.ContainsFunc(c.Aliases, like)) && len(near) < maxSuggestions {
				near = append(near, c.Name())
			}
		}
	}
	return near
}

// abbreviates reports whether a word has the first letter of a name, and others of
// it in their order.
func abbreviates(word, name string) bool {
	if len(word) < 2 || word[0] != name[0] {
		return false
	}
	for _, c := range name {
		if word != "" && rune(word[0]) == c {
			word = word[1:]
		}
	}
	return word == ""
}

// withDeadline is a context for cleaning up, which the end of the command's own
// does not cut short.
func withDeadline(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), d)
}
