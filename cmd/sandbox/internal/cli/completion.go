package cli

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/files"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/line"
)

type completionCommand struct{ deps }

func (c *completionCommand) command() *line.Command {
	return &line.Command{
		Name: "completion", Title: titleTools, Short: "Write a script that completes commands, options and names of sandboxes",
		Long: "Write a script that completes commands, options and names of sandboxes. To use it in bash: source <(sandbox completion bash). Bash needs the package bash-completion.",
		Args: []line.Argument{{Name: "bash|zsh|fish|powershell", Text: "The shell", Values: []string{"bash", "zsh", "fish", "powershell"}}},
		Run:  c.run, Example: "completion zsh", Account: line.NoAccount,
	}
}

func (c *completionCommand) run(cmd *cobra.Command, args []string) error {
	root := cmd.Root()
	switch args[0] {
	case "bash":
		return root.GenBashCompletionV2(c.screen.Out, true)
	case "zsh":
		return root.GenZshCompletion(c.screen.Out)
	case "fish":
		return root.GenFishCompletion(c.screen.Out, true)
	case "powershell":
		return root.GenPowerShellCompletionWithDesc(c.screen.Out)
	}
	return line.Usagef("%s is not supported; use bash, zsh, fish or powershell", strconv.Quote(args[0]))
}

// complete returns the function that completes the arguments of a command.
func (a *app) complete(c *line.Command) cobra.CompletionFunc {
	return func(cmd *cobra.Command, before []string, word string) ([]string, cobra.ShellCompDirective) {
		if c.Sub != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp // cobra completes the names of subcommands
		}
		i := len(before)
		if n := len(c.Args); i >= n && n > 0 && c.Args[n-1].Several {
			i = n - 1
		}
		if i >= len(c.Args) {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		switch g := c.Args[i]; {
		case g.Sandbox == " ":
			return slices.DeleteFunc(a.sandboxNames(cmd.Context(), word), func(name string) bool { return slices.Contains(before, name) }), cobra.ShellCompDirectiveNoFileComp
		case g.Sandbox != "" && !strings.ContainsAny(word, ":/."):
			names := a.sandboxNames(cmd.Context(), word)
			return mapped(names, func(name string) string { return name + g.Sandbox }), cobra.ShellCompDirectiveNoSpace
		case g.Sandbox != "":
			return nil, cobra.ShellCompDirectiveDefault
		default:
			return g.Values, cobra.ShellCompDirectiveNoFileComp
		}
	}
}

// completionTimeout limits the time of a completion.
const completionTimeout = 2 * time.Second

// sandboxNames returns the names of sandboxes that begin with a word. Because a user only
// pressed a key, it starts no emulator, creates no project and asks no questions.
func (a *app) sandboxNames(ctx context.Context, word string) []string {
	a.screen.Opts.NoInput, a.account.Looks = true, true
	ctx, cancel := context.WithTimeout(ctx, completionTimeout)
	defer cancel()
	client, err := a.account.Connect(ctx)
	if err != nil {
		return nil
	}
	page, err := client.ListPage(ctx, &sandbox.ListOptions{NamePrefix: word, Limit: maxPage})
	if err != nil {
		return nil
	}
	// The shell inserts these names into its command line. Leave out those with special
	// characters.
	return slices.DeleteFunc(mapped(page.Items, func(i sandbox.Info) string { return i.Name }), func(name string) bool { return !files.SandboxName.MatchString(name) })
}
