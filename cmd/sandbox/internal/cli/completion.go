package cli

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/go-vercel/sandbox"
)

const (
	// completionTime is how long a completion may take.
	completionTime = 2 * time.Second
	// cacheTime is how long names that were found are used again.
	cacheTime = 30 * time.Second
)

func (a *app) completionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "completion <bash|zsh|fish|powershell>", Short: "Write a script that completes commands, names and paths", GroupID: groupTools,
		Long: "Write a script that completes commands, options, names of sandboxes, IDs and remote paths.",
		Example: "  $ source <(sandbox completion bash)\n  $ sandbox completion zsh > \"${fpath[1]}/_sandbox\"\n" +
			"  $ sandbox completion fish > ~/.config/fish/completions/sandbox.fish",
		Args: positionals("bash|zsh|fish|powershell"), ValidArgs: []string{"bash", "zsh", "fish", "powershell"},
		RunE: func(cmd *cobra.Command, args []string) error {
			root := cmd.Root()
			switch args[0] {
			case "bash":
				return root.GenBashCompletionV2(a.out, true)
			case "zsh":
				return root.GenZshCompletion(a.out)
			case "fish":
				return root.GenFishCompletion(a.out, true)
			case "powershell":
				return root.GenPowerShellCompletionWithDesc(a.out)
			}
			return usagef("%s is not a shell that is known: bash, zsh, fish or powershell", quote(args[0]))
		},
	}
}

// complete gives commands their completions of arguments, by what their use line
// says that they take.
func (a *app) complete(cmd *cobra.Command) {
	for _, c := range cmd.Commands() {
		a.complete(c)
		if c.ValidArgsFunction != nil || c.ValidArgs != nil || c.HasSubCommands() {
			continue
		}
		use := strings.TrimPrefix(c.Use, c.Name())
		switch {
		case strings.Contains(use, "<src>"), strings.Contains(use, "name:"):
			c.ValidArgsFunction = a.completePath
		case strings.Contains(use, "<snapshot_id>"):
			c.ValidArgsFunction = func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
				if strings.Contains(use, "<name>") && len(args) == 0 {
					return a.names(cmd.Context()), cobra.ShellCompDirectiveNoFileComp
				}
				return a.cached(cmd.Context(), "snapshots", a.snapshotIDs), cobra.ShellCompDirectiveNoFileComp
			}
		case c.Parent().Name() == "drives", c.Parent().Name() == "profile":
		case strings.Contains(use, "<name>"), strings.Contains(use, "[name"), strings.Contains(use, "<source>"):
			c.ValidArgsFunction = a.completeNames(strings.Contains(use, "...name"), strings.Contains(use, "command_id"))
		}
	}
}

// completeNames completes names of sandboxes, and behind one the IDs of commands.
func (a *app) completeNames(several, commands bool) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		switch {
		case len(args) == 0 || several:
			return a.names(cmd.Context()), cobra.ShellCompDirectiveNoFileComp
		case commands && len(args) == 1:
			return a.cached(cmd.Context(), "commands "+args[0], func(ctx context.Context) ([]string, error) {
				return a.commandIDs(ctx, args[0])
			}), cobra.ShellCompDirectiveNoFileComp
		}
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
}

func (a *app) names(ctx context.Context) []string {
	return a.cached(ctx, "names", func(ctx context.Context) ([]string, error) {
		client, err := a.connect(ctx)
		if err != nil {
			return nil, err
		}
		page, err := client.ListPage(ctx, &sandbox.ListOptions{Limit: maxPage})
		if err != nil {
			return nil, err
		}
		return mapped(page.Items, func(i sandbox.Info) string { return i.Name + "\t" + string(i.Status) }), nil
	})
}

func (a *app) snapshotIDs(ctx context.Context) ([]string, error) {
	client, err := a.connect(ctx)
	if err != nil {
		return nil, err
	}
	page, err := client.ListSnapshotsPage(ctx, &sandbox.ListSnapshotsOptions{Limit: maxPage})
	if err != nil {
		return nil, err
	}
	return mapped(page.Items, func(s sandbox.SnapshotInfo) string { return s.ID + "\t" + string(s.Status) }), nil
}

func (a *app) commandIDs(ctx context.Context, name string) ([]string, error) {
	s, err := a.session(ctx, name)
	if err != nil {
		return nil, err
	}
	commands, err := s.ListCommands(ctx)
	return mapped(commands, func(c *sandbox.Command) string { return c.ID() + "\t" + c.Name() }), err
}

// completePath completes local paths, names of sandboxes with a colon, and paths
// in them.
func (a *app) completePath(cmd *cobra.Command, _ []string, word string) ([]string, cobra.ShellCompDirective) {
	l, err := parseLocation(word)
	if name, rest, ok := strings.Cut(word, ":"); err != nil && ok && rest == "" {
		l, err = location{sandbox: name}, nil
	}
	if err != nil || l.sandbox == "" {
		if strings.ContainsAny(word, "/.") {
			return nil, cobra.ShellCompDirectiveDefault
		}
		var out []string
		for _, n := range a.names(cmd.Context()) {
			name, _, _ := strings.Cut(n, "\t")
			out = append(out, name+":")
		}
		return out, cobra.ShellCompDirectiveNoSpace
	}
	dir := path.Dir(l.path + "x")
	return a.cached(cmd.Context(), "dir "+l.sandbox+":"+dir, func(ctx context.Context) ([]string, error) {
		s, err := a.session(ctx, l.sandbox)
		if err != nil {
			return nil, err
		}
		entries, err := s.FS().ReadDir(ctx, dir)
		if err != nil {
			return nil, err
		}
		var out []string
		prefix := l.path[:strings.LastIndex(l.path, "/")+1]
		for _, e := range entries {
			name := l.sandbox + ":" + prefix + e.Name()
			if e.IsDir() {
				name += "/"
			}
			out = append(out, name)
		}
		return out, nil
	}), cobra.ShellCompDirectiveNoSpace
}

// cached gives what was found a moment ago, or looks again, without ever asking
// for a login.
func (a *app) cached(ctx context.Context, key string, find func(context.Context) ([]string, error)) []string {
	dirs, err := a.dirs()
	if err != nil {
		return nil
	}
	a.opts.noInput = true
	sum := sha256.Sum256([]byte(strings.Join([]string{
		key, a.opts.scope, a.opts.project, a.opts.profile, a.opts.token, strconv.FormatBool(a.opts.local), a.apiURL(), workingDir(),
		a.getenv("VERCEL_AUTH_TOKEN"), a.getenv("SANDBOX_TOKEN"), a.getenv("SANDBOX_SCOPE"), a.getenv("SANDBOX_PROJECT"),
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
