package cli

import (
	"github.com/spf13/cobra"

	"github.com/go-vercel/sandbox/cmd/sandbox/internal/line"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/screen"
)

type inspectView struct {
	Sandbox sandboxView `json:"sandbox"`
	Session sessionView `json:"session"`
}

type inspectCommand struct{ deps }

func (c *inspectCommand) command() *line.Command {
	return &line.Command{
		Name: "inspect", Aliases: []string{"get"}, Near: []string{"show", "describe", "info"}, Title: titleManage, Short: "Show everything about a sandbox and its session, as JSON",
		Args: []line.Argument{line.NameArg}, Example: "inspect my-app", Doc: inspectView{}, Run: c.run,
	}
}

func (c *inspectCommand) run(cmd *cobra.Command, args []string) error {
	sb, err := c.account.Named(cmd.Context(), args[0], false)
	if err != nil {
		return err
	}
	v := inspectView{Sandbox: viewHandle(sb)}
	if s := sb.CurrentSession(); s != nil {
		v.Session = viewSession(s.Info())
	}
	return c.screen.Print(screen.Output{Doc: v, Names: []string{sb.Name()}})
}
