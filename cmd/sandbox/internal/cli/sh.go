package cli

import (
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/go-vercel/sandbox/cmd/sandbox/internal/line"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/screen"
)

type shCommand struct {
	deps

	s      settingsOptions
	remove bool
}

func (c *shCommand) command() *line.Command {
	return &line.Command{
		Name: "sh", Short: "Create a sandbox and start a shell in it", Foreign: "0",
		Long: "Create a sandbox and start a shell in it. With --rm the sandbox is removed when the shell ends.",
		Check: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return &line.UsageError{Message: "sh starts a plain shell and takes no command", Hint: "to run it in a new sandbox: " + screen.Try("run -i -- %s", line.ShellWords(args))}
			}
			return nil
		},
		Options: func(flags *pflag.FlagSet) {
			c.s.define(flags, "An environment variable for all commands of the sandbox (repeatable)")
			line.Toggle(flags, &c.remove, "rm", "", "Remove the sandbox when the shell has ended")
		},
		Example: "sh --rm", Run: c.run,
	}
}

func (c *shCommand) run(cmd *cobra.Command, _ []string) error {
	if err := c.screen.NeedTerminal("%s runs a command without one", screen.Try("run -- COMMAND")); err != nil {
		return err
	}
	c.warnWithoutUnit(optionValue(cmd, "timeout"))
	o := &runOptions{settings: c.s, rm: c.remove}
	if c.remove {
		o.settings.nonPersistent = true
	}
	create, err := o.settings.createOptions(cmd.Context(), &c.deps)
	if err != nil {
		return err
	}
	sb, err := c.sandboxForRun(cmd.Context(), o, create)
	if err != nil {
		return err
	}
	return c.runAndCleanUp(cmd.Context(), sb, func() error {
		if err := c.uploadFiles(cmd.Context(), sb, &o.settings); err != nil {
			return err
		}
		return c.terminal(cmd.Context(), sb, &terminalOptions{command: "sh", env: create.Env, keepAlive: true})
	}, cleanUp(c.remove, false))
}
