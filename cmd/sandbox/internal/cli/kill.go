package cli

import (
	"fmt"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/line"
)

type killCommand struct {
	deps

	send sandbox.Signal
	tree bool
}

func (c *killCommand) command() *line.Command {
	return &line.Command{
		Name: "kill", Title: titleCommands, Short: "Send a signal to a command", Args: []line.Argument{
			{Name: "name", Text: line.NameArg.Text, Sandbox: " ", Parse: func(s string) error {
				if line.Negative.MatchString(s) {
					return fmt.Errorf("%s is not the name of a sandbox; -s %s sends that signal", strconv.Quote(s), s[1:])
				}
				return nil
			}}, line.CommandIDArg,
		},
		Options: func(flags *pflag.FlagSet) {
			line.Option(flags, &c.send, "signal", "s", "signal", "TERM", "The signal, by its name or number", parseSignal)
			line.Offer(flags, "signal", "TERM", "KILL", "INT", "HUP", "USR1", "USR2")
			line.Toggle(flags, &c.tree, "tree", "", "Also send it to the command's children, and to theirs")
		},
		Example: "kill -s INT my-app cmd_0123", Doc: []string{}, Run: c.run,
	}
}

func (c *killCommand) run(cmd *cobra.Command, args []string) error {
	remote, err := c.remoteCommand(cmd.Context(), args[0], args[1])
	if err != nil {
		return err
	}
	if c.tree {
		err = remote.SignalTree(cmd.Context(), c.send)
	} else {
		err = remote.Signal(cmd.Context(), c.send)
	}
	if err != nil {
		return err
	}
	return c.screen.Result([]string{remote.ID()}, remote.ID())
}

func parseSignal(s string) (sandbox.Signal, error) {
	if n, err := strconv.Atoi(s); err == nil && n > 0 && n < 65 {
		return sandbox.Signal(n), nil
	}
	name := strings.ToUpper(s)
	if !strings.HasPrefix(name, "SIG") {
		name = "SIG" + name
	}
	return sandbox.ParseSignal(name)
}

// signalExitCode returns the exit code of a program that a signal has ended.
func signalExitCode(s syscall.Signal) int { return 128 + int(s) }
