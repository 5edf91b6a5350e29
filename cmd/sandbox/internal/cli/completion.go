package cli

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/units"
	"github.com/go-vercel/sandbox/internal/own"
	"github.com/go-vercel/sandbox/internal/redact"
	"github.com/go-vercel/sandbox/internal/wire"
	"github.com/go-vercel/sandbox/outputs"
)

const (
	// completionTime is how long a completion may take.
	completionTime = 2 * time.Second
	// cacheTime is how long names that were found are used again.
	cacheTime = 30 * time.Second
	// maxPrograms limits the names of a sandbox's programs.
	maxPrograms = 1 << 20
)

type completionCommand struct{ app *app }

func (c *completionCommand) command() *cobra.Command {
	return &cobra.Command{
		Use: "completion <bash|zsh|fish|powershell>", Short: "Write a script that completes commands, names and paths", GroupID: groupTools,
		Long: "Write a script that completes commands, options, names of sandboxes, IDs and remote paths.",
		Example: "  $ source <(sandbox completion bash)\n  $ sandbox completion zsh > \"${fpath[1]}/_sandbox\"\n" +
			"  $ sandbox completion fish > ~/.config/fish/completions/sandbox.fish",
		Args: positionals("bash|zsh|fish|powershell"), ValidArgs: []string{"bash", "zsh", "fish", "powershell"},
		RunE: c.run,
	}
}

func (c *completionCommand) run(cmd *cobra.Command, args []string) error {
	root := cmd.Root()
	switch args[0] {
	case "bash":
		return writeBashCompletion(root, c.app.out)
	case "zsh":
		return root.GenZshCompletion(c.app.out)
	case "fish":
		return root.GenFishCompletion(c.app.out, true)
	case "powershell":
		return root.GenPowerShellCompletionWithDesc(c.app.out)
	}
	return usagef("%s is not supported; use bash, zsh, fish or powershell", quote(args[0]))
}

// bashWords divides the line as bash-completion does, for shells without it: bash
// itself breaks words at = and : as well.
const bashWords = `local i n=-1 line=$COMP_LINE w
    words=()
    for ((i = 0; i < ${#COMP_WORDS[@]}; i++)); do
        w=${COMP_WORDS[i]}
        if ((n > 0)) && [[ $line != [[:space:]]* && ( $w == [=:]* || ${words[n]} == *[=:] ) ]]; then
            words[n]+=$w
        else
            n=$((n + 1))
            words[n]=$w
        fi
        ((i == COMP_CWORD)) && cword=$n
        line=${line#"${line%%[![:space:]]*}"}
        line=${line#"$w"}
    done
    cur=${words[cword]} prev=${words[cword-1]}`

// writeBashCompletion writes cobra's script so that it does not need the package
// bash-completion, where it is not there.
func writeBashCompletion(root *cobra.Command, w io.Writer) error {
	var script strings.Builder
	if err := root.GenBashCompletionV2(&script, true); err != nil {
		return err
	}
	const needed = `_get_comp_words_by_ref "$@" cur prev words cword`
	if !strings.Contains(script.String(), needed) {
		return errors.New("the script of cobra is not the one that is known")
	}
	_, err := io.WriteString(w, strings.Replace(script.String(), needed, bashWords, 1))
	return err
}

// completer finds what a word can become.
type completer struct{ app *app }

// completeValues gives the options of a command completions of their values.
func (c *completer) completeValues(cmd *cobra.Command, flags *pflag.FlagSet) {
	ids := func(key string, find func(context.Context) ([]string, error)) cobra.CompletionFunc {
		return func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
			return c.cached(cmd.Context(), key, find), cobra.ShellCompDirectiveNoFileComp
		}
	}
	flags.VisitAll(func(f *pflag.Flag) {
		if f.NoOptDefVal != "" {
			return
		}
		find := cobra.FixedCompletions(f.Annotations[choicesAnnotation], cobra.ShellCompDirectiveNoFileComp)
		switch f.Name {
		case "status":
			find = cobra.FixedCompletions(statuses, cobra.ShellCompDirectiveNoFileComp)
		case "region", "failover-regions":
			find = cobra.FixedCompletions(wire.Regions, cobra.ShellCompDirectiveNoFileComp)
		case "signal":
			find = cobra.FixedCompletions([]string{"TERM", "KILL", "INT", "HUP", "USR1", "USR2"}, cobra.ShellCompDirectiveNoFileComp)
		case "snapshot":
			find = ids("snapshots", func(ctx context.Context) ([]string, error) { return c.snapshotIDs(ctx, "") })
		case "only", "name-prefix":
			find = ids("names", c.findNames)
		case "name":
			if cmd.Name() == "run" || cmd.Name() == "list" {
				find = ids("names", c.findNames)
			}
		case "mount":
			find = func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
				return mapped(c.cached(cmd.Context(), "drives", c.driveNames), func(d string) string {
					name, _, _ := strings.Cut(d, "\t")
					return name + ":/"
				}), cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
			}
		case "scope":
			find = ids("teams", c.teams)
		case "upload", "env-file", "network-policy-file", "state", "input":
			return // files, as by default
		}
		// It fails for an option that has one already, which then stays.
		_ = cmd.RegisterFlagCompletionFunc(f.Name, find)
	})
}

// teams returns the slugs of the teams that the token can use.
func (c *completer) teams(ctx context.Context) ([]string, error) {
	var found []string
	c.app.opts.scope = "" // which is what is looked for
	if _, err := c.app.connect(ctx); err != nil {
		return found, nil
	}
	resp, err := c.app.request(ctx, http.MethodGet, c.app.address()+"/v2/teams?limit="+strconv.Itoa(maxPage), nil)
	if err != nil {
		return found, nil
	}
	defer resp.Body.Close()
	var page struct {
		Teams []struct {
			Slug string `json:"slug"`
			Name string `json:"name"`
		} `json:"teams"`
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxPageBody)).Decode(&page); err != nil {
		return found, nil
	}
	for _, t := range page.Teams {
		if t.Slug != "" && !slices.Contains(found, t.Slug) {
			found = append(found, t.Slug+"\t"+t.Name)
		}
	}
	return found, nil
}

// fixedArguments are what a second argument can be, by its name in the use line, or
// by the words of the command as well.
var fixedArguments = map[string][]string{
	"<true|false>": {"true", "false"}, "<REGION>": wire.Regions, "<REGION,...|none>": append([]string{"none"}, wire.Regions...), "<NETWORK_ID|none>": {"none"},
	"<DURATION|none>": {"none", "1d", "7d", "30d"}, "<num UNIT>": {"5m", "30m", "1h", "5h"},
	"config vcpus <COUNT>": {"1", "2", "4", "8", "16", "32"}, "config keep-last-snapshots <COUNT>": {"0", "1", "2", "3", "5", "10"},
}

// fixed are the values of a command's second argument, if they are known.
func fixed(cmd *cobra.Command, use string) []string {
	_, second, _ := strings.Cut(strings.TrimSpace(use), " ")
	return append(slices.Clip(fixedArguments[second]), fixedArguments[strings.TrimPrefix(cmd.CommandPath(), "sandbox ")+" "+second]...)
}

// fitting are the states of sandboxes that commands are for which are not for all.
var fitting = map[string][]sandbox.Status{
	"stop": {sandbox.StatusRunning, sandbox.StatusPending}, "start": {sandbox.StatusStopped, sandbox.StatusFailed, sandbox.StatusAborted},
	"extend": {sandbox.StatusRunning}, "ps": {sandbox.StatusRunning}, "logs": {sandbox.StatusRunning}, "wait": {sandbox.StatusRunning}, "kill": {sandbox.StatusRunning},
	"snapshot": {sandbox.StatusRunning},
}

// complete gives commands their completions of arguments, by what their use line
// says that they take.
func (c *completer) complete(cmd *cobra.Command) {
	c.completeValues(cmd, cmd.Flags())
	c.completeValues(cmd, cmd.PersistentFlags())
	for _, sub := range cmd.Commands() {
		c.complete(sub)
		if sub.ValidArgsFunction != nil || sub.ValidArgs != nil || sub.HasSubCommands() {
			continue
		}
		use := strings.TrimPrefix(sub.Use, sub.Name())
		switch {
		case strings.Contains(use, "<src>"), strings.Contains(use, "name:"):
			sub.ValidArgsFunction = c.completePath
		case strings.Contains(use, "<name> <path>"):
			sub.ValidArgsFunction = c.completeFile
		case strings.Contains(use, "<snapshot_id>"):
			if strings.Contains(use, "<name>") {
				sub.ValidArgsFunction = c.completeNames(false, c.snapshotIDs)
				break
			}
			all := func(ctx context.Context) ([]string, error) { return c.snapshotIDs(ctx, "") }
			sub.ValidArgsFunction = c.completeFound("snapshots", all, strings.Contains(use, "...snapshot_id"))
		case sub.Name() == "exec":
			sub.ValidArgsFunction = c.completeCommand
		case sub.Name() == "run":
			sub.ValidArgsFunction = cobra.NoFileCompletions // its words are the sandbox's
		case sub.Parent().Name() == "drives" && !strings.Contains(use, ":"):
			sub.ValidArgsFunction = c.completeFound("drives", c.driveNames, strings.Contains(use, "...name"))
		case strings.Contains(use, "<name>"), strings.Contains(use, "[name"), strings.Contains(use, "<source>"):
			var second func(context.Context, string) ([]string, error)
			switch {
			case sub.Name() == "kill":
				second = c.runningIDs
			case strings.Contains(use, "command_id"):
				second = c.commandIDs
			case strings.Contains(use, "port>"):
				second = c.publishedPorts
			}
			sub.ValidArgsFunction = c.completeNames(strings.Contains(use, "...name"), second, fixed(sub, use)...)
		}
	}
}

// completeFound completes an argument, or all, by what is found.
func (c *completer) completeFound(key string, find func(context.Context) ([]string, error), several bool) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 && !several {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return without(c.cached(cmd.Context(), key, find), args), cobra.ShellCompDirectiveNoFileComp
	}
}

// without leaves out what is there already.
func without(found, args []string) []string {
	return slices.DeleteFunc(found, func(f string) bool {
		name, _, _ := strings.Cut(f, "\t")
		return slices.Contains(args, name)
	})
}

// completeNames completes names of sandboxes, and after one what belongs to it,
// or some words.
func (c *completer) completeNames(several bool, second func(context.Context, string) ([]string, error), words ...string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		switch {
		case len(args) == 0 || several:
			found := without(c.names(cmd.Context()), args)
			if states := fitting[cmd.Name()]; states != nil && cmd.Parent() == cmd.Root() {
				fit := slices.DeleteFunc(slices.Clone(found), func(f string) bool {
					_, state, _ := strings.Cut(f, "\t")
					return !slices.Contains(states, sandbox.Status(state))
				})
				if len(fit) > 0 { // the states may be those of a moment ago
					found = fit
				}
			}
			return found, cobra.ShellCompDirectiveNoFileComp
		case len(args) == 1 && second != nil:
			return c.cached(cmd.Context(), cmd.Name()+" "+args[0], func(ctx context.Context) ([]string, error) {
				return second(ctx, args[0])
			}), cobra.ShellCompDirectiveNoFileComp
		case len(args) == 1:
			return words, cobra.ShellCompDirectiveNoFileComp
		}
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
}

func (c *completer) names(ctx context.Context) []string { return c.cached(ctx, "names", c.findNames) }

func (c *completer) findNames(ctx context.Context) ([]string, error) {
	client, err := c.app.connect(ctx)
	if err != nil {
		return nil, err
	}
	page, err := client.ListPage(ctx, &sandbox.ListOptions{Limit: maxPage})
	if err != nil {
		return nil, err
	}
	return mapped(page.Items, func(i sandbox.Info) string { return i.Name + "\t" + string(i.Status) }), nil
}

func (c *completer) driveNames(ctx context.Context) ([]string, error) {
	client, err := c.app.connect(ctx)
	if err != nil {
		return nil, err
	}
	page, err := client.ListDrivesPage(ctx, &sandbox.ListDrivesOptions{Limit: maxPage})
	if err != nil {
		return nil, err
	}
	return mapped(page.Items, func(d sandbox.DriveInfo) string { return d.Name + "\t" + d.Region }), nil
}

// snapshotIDs are those of a sandbox, or of all, that there still are.
func (c *completer) snapshotIDs(ctx context.Context, name string) ([]string, error) {
	client, err := c.app.connect(ctx)
	if err != nil {
		return nil, err
	}
	page, err := client.ListSnapshotsPage(ctx, &sandbox.ListSnapshotsOptions{Sandbox: name, Limit: maxPage})
	if err != nil {
		return nil, err
	}
	there := slices.DeleteFunc(page.Items, func(s sandbox.SnapshotInfo) bool { return s.Status != "created" })
	return mapped(there, func(s sandbox.SnapshotInfo) string { return s.ID + "\t" + units.Distance(s.CreatedAt, c.app.now()) }), nil
}

// publishedPorts are the ports of a sandbox that have an address.
func (c *completer) publishedPorts(ctx context.Context, name string) ([]string, error) {
	sb, err := c.app.get(ctx, name, false)
	if err != nil {
		return nil, err
	}
	return mapped(sb.Routes(), func(r sandbox.Route) string { return strconv.Itoa(r.Port) }), nil
}

// runningIDs are the commands of a sandbox that can be sent a signal.
func (c *completer) runningIDs(ctx context.Context, name string) ([]string, error) {
	s, err := c.app.session(ctx, name)
	if err != nil {
		return nil, err
	}
	commands, err := s.ListCommands(ctx)
	commands = slices.DeleteFunc(commands, func(c *sandbox.Command) bool { _, ended := c.ExitStatus(); return ended })
	return mapped(commands, func(c *sandbox.Command) string { return c.ID() + "\t" + c.Name() }), err
}

func (c *completer) commandIDs(ctx context.Context, name string) ([]string, error) {
	s, err := c.app.session(ctx, name)
	if err != nil {
		return nil, err
	}
	commands, err := s.ListCommands(ctx)
	return mapped(commands, func(c *sandbox.Command) string { return c.ID() + "\t" + c.Name() }), err
}

// completePath completes local paths, names of sandboxes with a colon, and paths
// in them.
func (c *completer) completePath(cmd *cobra.Command, _ []string, word string) ([]string, cobra.ShellCompDirective) {
	l, err := parseLocation(word)
	if name, rest, ok := strings.Cut(word, ":"); err != nil && ok && rest == "" {
		l, err = location{sandbox: name}, nil
	}
	if err != nil || l.sandbox == "" {
		if strings.ContainsAny(word, "/.") {
			return nil, cobra.ShellCompDirectiveDefault
		}
		var out []string
		for _, n := range c.names(cmd.Context()) {
			name, _, _ := strings.Cut(n, "\t")
			out = append(out, name+":")
		}
		return out, cobra.ShellCompDirectiveNoSpace
	}
	return c.filesIn(cmd.Context(), l.sandbox, "", l.sandbox+":", l.path), cobra.ShellCompDirectiveNoSpace
}

// completeFile completes the name of a sandbox, and then a path in it.
func (c *completer) completeFile(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
	switch len(args) {
	case 0:
		return c.names(cmd.Context()), cobra.ShellCompDirectiveNoFileComp
	case 1:
		return c.filesIn(cmd.Context(), args[0], "", "", word), cobra.ShellCompDirectiveNoSpace | cobra.ShellCompDirectiveNoFileComp
	}
	return nil, cobra.ShellCompDirectiveNoFileComp
}

// programs are what a command line can begin with in a session: the files of its
// path.
const programs = `IFS=:; for d in $PATH; do ls -1 -- "$d" 2>/dev/null; done | sort -u`

// completeCommand completes the name of a sandbox, and then a command line in it:
// its programs, and paths.
func (c *completer) completeCommand(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
	switch {
	case len(args) == 0:
		return c.names(cmd.Context()), cobra.ShellCompDirectiveNoFileComp
	case strings.HasPrefix(word, "-"):
		return nil, cobra.ShellCompDirectiveNoFileComp
	case len(args) == 1 && !strings.Contains(word, "/"):
		return c.cached(cmd.Context(), "programs "+args[0], func(ctx context.Context) ([]string, error) {
			s, err := c.app.session(ctx, args[0])
			if err != nil {
				return nil, err
			}
			var out strings.Builder
			_, err = own.Run(ctx, s, &sandbox.CommandOptions{Stdout: outputs.Limit(&out, maxPrograms)}, "sh", "-c", programs)
			return strings.Fields(out.String()), err
		}), cobra.ShellCompDirectiveNoFileComp
	}
	return c.filesIn(cmd.Context(), args[0], cmd.Flag("workdir").Value.String(), "", word), cobra.ShellCompDirectiveNoSpace | cobra.ShellCompDirectiveNoFileComp
}

// filesIn lists the directory of a sandbox that a path which is being written leads
// into, from workdir or the usual directory. What is offered begins with before.
func (c *completer) filesIn(ctx context.Context, name, workdir, before, file string) []string {
	dir := path.Dir(file + "x")
	if !path.IsAbs(dir) {
		dir = path.Join(workdir, dir)
	}
	prefix := before + file[:strings.LastIndex(file, "/")+1]
	return c.cached(ctx, "dir "+name+" "+prefix+" "+dir, func(ctx context.Context) ([]string, error) {
		s, err := c.app.session(ctx, name)
		if err != nil {
			return nil, err
		}
		entries, err := s.FS().ReadDir(ctx, dir)
		if err != nil {
			return nil, err
		}
		var out []string
		for _, e := range entries {
			name := prefix + e.Name()
			if e.IsDir() {
				name += "/"
			}
			out = append(out, name)
		}
		return out, nil
	})
}

// cached gives what was found a moment ago, or looks again, without ever asking
// for a login.
func (c *completer) cached(ctx context.Context, key string, find func(context.Context) ([]string, error)) []string {
	dirs := c.app.dirs()
	if dirs.Cache == "" {
		return nil
	}
	c.app.opts.noInput, c.app.looks = true, true
	sum := sha256.Sum256([]byte(strings.Join([]string{
		key, c.app.opts.scope, c.app.opts.project, c.app.opts.token, strconv.FormatBool(c.app.opts.local), c.app.apiURL(), workingDir(),
		c.app.getenv("VERCEL_AUTH_TOKEN"), c.app.getenv("SANDBOX_TOKEN"), c.app.getenv("SANDBOX_SCOPE"), c.app.getenv("SANDBOX_PROJECT"),
		c.app.getenv("VERCEL_TOKEN"), c.app.getenv("VERCEL_TEAM_ID"), c.app.getenv("VERCEL_PROJECT_ID"), c.app.getenv("VERCEL_OIDC_TOKEN"),
	}, "\x00")))
	file := filepath.Join(dirs.Cache, "completion", hex.EncodeToString(sum[:16])+".json")
	var found []string
	if info, err := os.Stat(file); err == nil && time.Since(info.ModTime()) < cacheTime {
		if data, err := os.ReadFile(file); err == nil && json.Unmarshal(data, &found) == nil {
			return found
		}
	}
	ctx, cancel := context.WithTimeout(ctx, completionTime)
	defer cancel()
	found, err := find(ctx)
	if err != nil {
		return nil
	}
	// A shell may come to harm by a name that has more than letters in it, and
	// sandboxes choose the names of their files.
	found = slices.DeleteFunc(found, func(s string) bool {
		name, about, _ := strings.Cut(s, "\t")
		return redact.Printable(name) != name || redact.Printable(about) != about
	})
	if data, err := json.Marshal(found); err == nil && os.MkdirAll(filepath.Dir(file), 0o700) == nil {
		_ = os.WriteFile(file, data, 0o600) // without a cache it is only slower
	}
	return found
}

func workingDir() string {
	dir, err := os.Getwd()
	if err != nil {
		return ""
	}
	return dir
}
