package cli

import (
	"fmt"
	"time"

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

type startCommand struct{ deps }

func (c *startCommand) command() *line.Command {
	return &line.Command{
		Name: "start", Near: []string{"resume"}, Title: titleManage, Short: "Start sandboxes that are stopped", Args: []line.Argument{line.NameArg, line.MoreNames},
		Example: "start my-app", Doc: []string{}, Run: c.run,
	}
}

func (c *startCommand) run(cmd *cobra.Command, args []string) error {
	names, _, err := c.chosen(cmd.Context(), cmd, args, &selection{})
	if err != nil {
		return err
	}
	if _, err := c.account.Connect(cmd.Context()); err != nil {
		return err
	}
	return c.tasks(names, "Starting sandbox ", func(name string) error {
		_, err := c.account.Get(cmd.Context(), name, true)
		return err
	})
}

type extendCommand struct{ deps }

func (c *extendCommand) command() *line.Command {
	return &line.Command{
		Name: "extend", Title: titleManage, Short: "Extend the timeout of a running session",
		Args:    []line.Argument{line.NameArg, {Name: "num UNIT", Text: "A duration, such as 30m or 1h30m", Parse: line.Checked(line.ParseTimeout)}},
		Example: "extend my-app 30m", Doc: sessionView{}, Run: c.run,
	}
}

func (c *extendCommand) run(cmd *cobra.Command, args []string) error {
	d, err := line.ParseTimeout(args[1])
	if err != nil {
		return line.Usagef("%v", err)
	}
	c.warnWithoutUnit(args[1])
	s, err := c.session(cmd.Context(), args[0])
	if err != nil {
		return err
	}
	if err := s.ExtendTimeout(cmd.Context(), d); err != nil {
		return err
	}
	i := s.Info()
	end := i.StartedAt.Add(i.Timeout)
	if c.screen.Opts.Structured() {
		return c.screen.Print(screen.Output{Doc: viewSession(i), Names: []string{i.ID}})
	}
	fmt.Fprintf(c.screen.Err, "The session ends %s, at %s.\n", distance(&end, c.screen.Now()), end.Local().Format(time.TimeOnly))
	return nil
}
