package cli

import (
	"github.com/spf13/cobra"

	"github.com/go-vercel/sandbox/cmd/sandbox/internal/line"
)

type startCommand struct{ deps }

func (c *startCommand) command() *line.Command {
	return &line.Command{
		Name: "start", Near: []string{"resume"}, Title: titleManage, Short: "Start sandboxes that are stopped", Args: []line.Argument{line.NameArg, line.MoreNames},
		Example: "start my-app", Doc: []string{}, Run: c.run,
	}
}

func (c *startCommand) run(cmd *cobra.Command, args []string) error {
	names, _, err := c.chosenNames(cmd.Context(), cmd, args, &selection{})
	if err != nil {
		return err
	}
	if _, err := c.account.Connect(cmd.Context()); err != nil {
		return err
	}
	return c.runTasks(names, "Starting sandbox ", func(name string) error {
		_, err := c.account.Get(cmd.Context(), name, true)
		return err
	})
}
