package cli

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"
)

type inspectView struct {
	Sandbox sandboxView `json:"sandbox"`
	Session sessionView `json:"session"`
}

type inspectCommand struct{ place }

func (c *inspectCommand) command() *command {
	return &command{
		name: "inspect", aliases: []string{"get"}, near: []string{"show", "describe", "info"}, title: titleManage, short: "Show everything about a sandbox and its session, as JSON",
		args: []argument{nameArg}, example: "inspect my-app", doc: inspectView{}, run: c.run,
	}
}

func (c *inspectCommand) run(cmd *cobra.Command, args []string) error {
	sb, err := c.account.named(cmd.Context(), args[0], false)
	if err != nil {
		return err
	}
	v := inspectView{Sandbox: viewHandle(sb)}
	if s := sb.CurrentSession(); s != nil {
		v.Session = viewSession(s.Info())
	}
	return c.screen.print(output{doc: v, names: []string{sb.Name()}})
}

type startCommand struct{ place }

func (c *startCommand) command() *command {
	return &command{
		name: "start", near: []string{"resume"}, title: titleManage, short: "Start sandboxes that are stopped", args: []argument{nameArg, moreNames},
		example: "start my-app", doc: []string{}, run: c.run,
	}
}

func (c *startCommand) run(cmd *cobra.Command, args []string) error {
	names, _, err := c.chosen(cmd.Context(), cmd, args, &selection{})
	if err != nil {
		return err
	}
	if _, err := c.account.connect(cmd.Context()); err != nil {
		return err
	}
	return c.tasks(names, "Starting sandbox ", func(name string) error {
		_, err := c.account.get(cmd.Context(), name, true)
		return err
	})
}

type extendCommand struct{ place }

func (c *extendCommand) command() *command {
	return &command{
		name: "extend", title: titleManage, short: "Extend the timeout of a running session",
		args:    []argument{nameArg, {name: "num UNIT", text: "A duration, such as 30m or 1h30m", parse: checked(parseTimeout)}},
		example: "extend my-app 30m", doc: sessionView{}, run: c.run,
	}
}

func (c *extendCommand) run(cmd *cobra.Command, args []string) error {
	d, err := parseTimeout(args[1])
	if err != nil {
		return usagef("%v", err)
	}
	c.doubtTimeout(args[1])
	s, err := c.session(cmd.Context(), args[0])
	if err != nil {
		return err
	}
	if err := s.ExtendTimeout(cmd.Context(), d); err != nil {
		return err
	}
	i := s.Info()
	end := i.StartedAt.Add(i.Timeout)
	if c.screen.opts.structured() {
		return c.screen.print(output{doc: viewSession(i), names: []string{i.ID}})
	}
	fmt.Fprintf(c.screen.err, "The session ends %s, at %s.\n", distance(&end, c.screen.now()), end.Local().Format(time.TimeOnly))
	return nil
}
