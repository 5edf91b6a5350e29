package cli

import (
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/go-vercel/sandbox/cmd/sandbox/internal/line"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/screen"
)

type connectCommand struct {
	deps

	o       terminalOptions
	env     []line.Pair
	timeout time.Duration
	noKeep  bool
}

func (c *connectCommand) command() *line.Command {
	return &line.Command{
		Name: "connect", Aliases: []string{"ssh", "shell"}, Near: []string{"console", "enter", "terminal"}, First: true, Short: "Start a shell in a sandbox",
		Long: "Start the shell of the user, $SHELL, in a sandbox. A stopped sandbox is started first. The timeout is extended while the shell is open.",
		Args: []line.Argument{line.NameArg}, Options: c.define, Example: "ssh my-app", Run: c.run,
	}
}

func (c *connectCommand) define(flags *pflag.FlagSet) {
	line.Toggle(flags, &c.o.sudo, "sudo", "", "Start the shell as root")
	line.Option(flags, &c.o.user, "user", "u", "name", "", "Start the shell as another user of the sandbox", line.ParseUser)
	line.Option(flags, &c.o.workdir, "workdir", "w", "str", "", "The directory to start in", line.ParseDirectory)
	line.Variables(flags, &c.env, "An environment variable for the shell (repeatable)")
	line.Option(flags, &c.timeout, "timeout", "", "num UNIT", "", "Not allowed: a shell has no time limit of its own", line.ParseDuration)
	line.Toggle(flags, &c.noKeep, "no-extend-timeout", "", "Don't extend the sandbox's timeout while the shell is open")
}

func (c *connectCommand) run(cmd *cobra.Command, args []string) error {
	switch {
	case c.timeout > 0:
		return line.Usagef("--timeout can't be used with a shell")
	case c.o.sudo && c.o.user != "":
		return line.Usagef("--sudo and --user exclude each other")
	}
	if err := c.account.CheckName(args[0]); err != nil {
		return err
	}
	if err := c.screen.NeedTerminal("%s runs a command without one", screen.Try("exec %s -- COMMAND", args[0])); err != nil {
		return err
	}
	sb, err := c.account.Get(cmd.Context(), args[0], true)
	if err != nil {
		return err
	}
	if c.o.user != "" {
		if c.o.workdir, err = userDirectory(cmd.Context(), sb, c.o.user, c.o.workdir); err != nil {
			return err
		}
	}
	c.o.keepAlive = !c.noKeep
	c.o.env = c.resolvePairs(c.env, "--env")
	return c.terminal(cmd.Context(), sb, &c.o)
}
