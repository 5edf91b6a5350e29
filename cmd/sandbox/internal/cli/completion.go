package cli

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/go-vercel/sandbox"
)

type completionCommand struct{ place }

func (c *completionCommand) command() *command {
	return &command{
		name: "completion", title: titleTools, short: "Write a script that completes commands, options and names of sandboxes",
		long: "Write a script that completes commands, options and names of sandboxes: source <(sandbox completion bash). In bash, the package bash-completion has to be there.",
		args: []argument{{name: "bash|zsh|fish|powershell", text: "The shell", values: []string{"bash", "zsh", "fish", "powershell"}}},
		run:  c.run, example: "completion zsh", account: noAccount,
	}
}

func (c *completionCommand) run(cmd *cobra.Command, args []string) error {
	root := cmd.Root()
	switch args[0] {
	case "bash":
		return root.GenBashCompletionV2(c.screen.out, true)
	case "zsh":
		return root.GenZshCompletion(c.screen.out)
	case "fish":
		return root.GenFishCompletion(c.screen.out, true)
	case "powershell":
		return root.GenPowerShellCompletionWithDesc(c.screen.out)
	}
	return usagef("%s is not supported; use bash, zsh, fish or powershell", strconv.Quote(args[0]))
}

// complete completes the arguments of a command.
func (a *app) complete(c *command) cobra.CompletionFunc {
	return func(cmd *cobra.Command, before []string, word string) ([]string, cobra.ShellCompDirective) {
		if c.sub != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp // cobra has added the commands
		}
		i := len(before)
		if n := len(c.args); i >= n && n > 0 && c.args[n-1].several {
			i = n - 1
		}
		if i >= len(c.args) {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		switch g := c.args[i]; {
		case g.sandbox == " ":
			return slices.DeleteFunc(a.sandboxNames(cmd.Context(), word), func(name string) bool { return slices.Contains(before, name) }), cobra.ShellCompDirectiveNoFileComp
		case g.sandbox != "" && !strings.ContainsAny(word, ":/."):
			names := a.sandboxNames(cmd.Context(), word)
			return mapped(names, func(name string) string { return name + g.sandbox }), cobra.ShellCompDirectiveNoSpace
		case g.sandbox != "":
			return nil, cobra.ShellCompDirectiveDefault
		default:
			return g.values, cobra.ShellCompDirectiveNoFileComp
		}
	}
}

// completionTime is how long a completion may take.
const completionTime = 2 * time.Second

// sandboxNames are the names of sandboxes that begin with a word. Nothing is started,
// created or asked for a completion.
func (a *app) sandboxNames(ctx context.Context, word string) []string {
	a.screen.opts.noInput, a.account.looks = true, true
	ctx, cancel := context.WithTimeout(ctx, completionTime)
	defer cancel()
	client, err := a.account.connect(ctx)
	if err != nil {
		return nil
	}
	page, err := client.ListPage(ctx, &sandbox.ListOptions{NamePrefix: word, Limit: maxPage})
	if err != nil {
		return nil
	}
	// A shell may come to harm by a name that has more than letters in it.
	return slices.DeleteFunc(mapped(page.Items, func(i sandbox.Info) string { return i.Name }), func(name string) bool { return !sandboxName.MatchString(name) })
}
