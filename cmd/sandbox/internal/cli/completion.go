package cli

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"maps"
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
	"github.com/go-vercel/sandbox/internal/own"
	"github.com/go-vercel/sandbox/internal/redact"
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
	regions := []string{"iad1", "sfo1", "fra1"}
	flags.VisitAll(func(f *pflag.Flag) {
		if f.NoOptDefVal != "" {
			return
		}
		find := cobra.FixedCompletions(f.Annotations[choicesAnnotation], cobra.ShellCompDirectiveNoFileComp)
		switch f.Name {
		case "status":
			find = cobra.FixedCompletions(statuses, cobra.ShellCompDirectiveNoFileComp)
		case "region", "failover-regions":
			find = cobra.FixedCompletions(regions, cobra.ShellCompDirectiveNoFileComp)
		case "signal":
			find = cobra.FixedCompletions([]string{"TERM", "KILL", "INT", "HUP", "USR1", "USR2"}, cobra.ShellCompDirectiveNoFileComp)
		case "snapshot":
			find = ids("snapshots", c.snapshotIDs)
		case "only", "name-prefix":
			find = ids("names", c.findNames)
		case "name":
			if cmd.Name() == "run" || cmd.Name() == "list" {
				find = ids("names", c.findNames)
			}
		case "profile":
			find = ids("profiles", c.profileNames)
		case "upload", "env-file", "network-policy-file", "state", "input":
			return // files, as by default
		}
		// It fails for an option that has one already, which then stays.
		_ = cmd.RegisterFlagCompletionFunc(f.Name, find)
	})
}

func (c *completer) profileNames(context.Context) ([]string, error) {
	dirs := c.app.dirs()
	config, err := dirs.ReadConfig()
	return slices.Sorted(maps.Keys(config.Profiles)), err
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
			sub.ValidArgsFunction = func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
				if strings.Contains(use, "<name>") && len(args) == 0 {
					return c.names(cmd.Context()), cobra.ShellCompDirectiveNoFileComp
				}
				return c.cached(cmd.Context(), "snapshots", c.snapshotIDs), cobra.ShellCompDirectiveNoFileComp
			}
		case sub.Name() == "exec":
			sub.ValidArgsFunction = c.completeCommand
		case sub.Name() == "run":
			sub.ValidArgsFunction = cobra.NoFileCompletions // its words are the sandbox's
		case sub.Parent().Name() == "drives" && !strings.Contains(use, ":"):
			sub.ValidArgsFunction = c.completeFound("drives", c.driveNames, strings.Contains(use, "...name"))
		case sub.Parent().Name() == "profile":
			sub.ValidArgsFunction = c.completeFound("profiles", c.profileNames, false)
		case sub.Parent().Name() == "config" && strings.Contains(use, "<true|false>"):
			sub.ValidArgsFunction = c.completeNames(false, nil, "true", "false")
		case strings.Contains(use, "<name>"), strings.Contains(use, "[name"), strings.Contains(use, "<source>"):
			var second func(context.Context, string) ([]string, error)
			if strings.Contains(use, "command_id") {
				second = c.commandIDs
			}
			sub.ValidArgsFunction = c.completeNames(strings.Contains(use, "...name"), second)
		}
	}
}

// completeFound completes an argument, or all, by what is found.
func (c *completer) completeFound(key string, find func(context.Context) ([]string, error), several bool) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 && !several {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return c.cached(cmd.Context(), key, find), cobra.ShellCompDirectiveNoFileComp
	}
}

// completeNames completes names of sandboxes, and after one what belongs to it,
// or some words.
func (c *completer) completeNames(several bool, second func(context.Context, string) ([]string, error), words ...string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		switch {
		case len(args) == 0 || several:
			return c.names(cmd.Context()), cobra.ShellCompDirectiveNoFileComp
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

func (c *completer) snapshotIDs(ctx context.Context) ([]string, error) {
	client, err := c.app.connect(ctx)
	if err != nil {
		return nil, err
	}
	page, err := client.ListSnapshotsPage(ctx, &sandbox.ListSnapshotsOptions{Limit: maxPage})
	if err != nil {
		return nil, err
	}
	return mapped(page.Items, func(s sandbox.SnapshotInfo) string { return s.ID + "\t" + string(s.Status) }), nil
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
	profile, err := c.app.profile()
	if err != nil {
		return nil
	}
	sum := sha256.Sum256([]byte(strings.Join([]string{
		key, profile.Team, profile.Project, profile.Token, c.app.opts.scope, c.app.opts.project, c.app.opts.profile, c.app.opts.token, strconv.FormatBool(c.app.opts.local), c.app.apiURL(), workingDir(),
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
	if found, err = find(ctx); err != nil {
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
