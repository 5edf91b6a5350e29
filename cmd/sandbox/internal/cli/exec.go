package cli

import (
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/go-vercel/sandbox/cmd/sandbox/internal/line"
)

// createTimeout limits the time of a creation that a signal must not interrupt.
const createTimeout = 2 * time.Minute

type execCommand struct {
	deps

	o     commandOptions
	stdin bool
}

func (c *execCommand) command() *line.Command {
	return &line.Command{
		Name: "exec", First: true, Short: "Run a command in a sandbox", Foreign: "1",
		Long: "Run a command in a sandbox. A stopped sandbox is started first. Options come before the command; " +
			"everything after it belongs to the command. The exit code is the command's.",
		Args:    []line.Argument{line.NameArg, {Name: "command", Text: "The program to run"}, line.MoreWords},
		Options: c.define, Example: "exec my-app -- npm test", Doc: commandView{}, Run: c.run,
	}
}

func (c *execCommand) define(flags *pflag.FlagSet) {
	c.o.define(flags, "t")
	line.Toggle(flags, &c.stdin, "stdin", "", "Pass standard input on as it arrives, never in a terminal")
	line.Variables(flags, &c.o.env, "An environment variable for the command (repeatable)")
	line.Options(flags, &c.o.envFiles, "env-file", "", "FILE", "Read environment variables from a file (repeatable)", line.ParseText)
	line.Option(flags, &c.o.timeout, "timeout", "", "num UNIT", "", "How long the command may run, such as 30s; it is then killed", line.ParseCommandTimeout)
}

func (c *execCommand) run(cmd *cobra.Command, args []string) error {
	if c.stdin {
		if c.o.interactive || c.o.tty || c.o.detach {
			return line.Usagef("--stdin excludes -i, -t and -d")
		}
		c.o.interactive, c.o.noTTY = true, true
	}
	if err := c.checkCommand(&c.o, args[1:]); err != nil {
		return err
	}
	ctx := cmd.Context()
	c.warnWithoutUnit(optionValue(cmd, "timeout"))
	sb, err := c.account.Named(ctx, args[0], true)
	if err != nil {
		return err
	}
	return c.runAndCleanUp(ctx, sb, func() error { return c.runRemote(ctx, sb, &c.o, args[1], args[2:]) }, cleanUp(false, c.o.stop))
}
