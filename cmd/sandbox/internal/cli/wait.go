package cli

import (
	"github.com/spf13/cobra"

	"github.com/go-vercel/sandbox/cmd/sandbox/internal/line"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/screen"
)

type waitCommand struct{ deps }

func (c *waitCommand) command() *line.Command {
	return &line.Command{
		Name: "wait", Title: titleCommands, Short: "Wait for the end of a command; the exit code is the command's", Args: []line.Argument{line.NameArg, line.CommandIDArg},
		Example: "wait my-app cmd_0123", Doc: commandView{}, Run: c.run,
	}
}

func (c *waitCommand) run(cmd *cobra.Command, args []string) error {
	remote, err := c.remoteCommand(cmd.Context(), args[0], args[1])
	if err != nil {
		return err
	}
	result, err := remote.Wait(cmd.Context())
	if err != nil {
		return err
	}
	if c.screen.Opts.Structured() {
		if err := c.screen.Print(screen.Output{Doc: viewCommand(result.Command), Names: []string{result.Command.ID()}}); err != nil {
			return err
		}
	}
	return screen.ExitWith(result.ExitCode)
}
