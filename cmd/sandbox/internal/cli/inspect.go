package cli

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/go-vercel/sandbox"
)

type inspectView struct {
	Sandbox sandboxView `json:"sandbox"`
	Session sessionView `json:"session"`
}

type inspectCommand struct{ app *app }

func (c *inspectCommand) command() *cobra.Command {
	return &cobra.Command{
		Use: "inspect <name>", Aliases: []string{"get"}, Short: "Show everything about a sandbox and its session, as JSON", GroupID: groupManage,
		Args: positionals("name"),
		RunE: c.run,
	}
}

func (c *inspectCommand) run(cmd *cobra.Command, args []string) error {
	sb, err := c.app.named(cmd.Context(), args[0], false)
	if err != nil {
		return err
	}
	v := inspectView{Sandbox: viewHandle(sb)}
	if s := sb.CurrentSession(); s != nil {
		v.Session = viewSession(s.Info())
	}
	return c.app.print(output{doc: v, names: []string{sb.Name()}})
}

type startCommand struct{ app *app }

func (c *startCommand) command() *cobra.Command {
	return &cobra.Command{
		Use: "start <name> [...name]", Short: "Start sandboxes that are stopped", GroupID: groupManage, Args: cobra.ArbitraryArgs,
		RunE: c.run,
	}
}

func (c *startCommand) run(cmd *cobra.Command, args []string) error {
	names, _, err := c.app.chosen(cmd.Context(), cmd, args, &selection{})
	if err != nil {
		return err
	}
	if _, err := c.app.connect(cmd.Context()); err != nil {
		return err
	}
	return c.app.tasks(names, "Starting sandbox ", func(name string) error {
		_, err := c.app.get(cmd.Context(), name, true)
		return err
	})
}

type extendCommand struct{ app *app }

func (c *extendCommand) command() *cobra.Command {
	return &cobra.Command{
		Use: "extend <name> <num UNIT>", Short: "Extend the timeout of a running session", GroupID: groupManage,
		Args: positionals("name", "num UNIT"),
		RunE: c.run,
	}
}

func (c *extendCommand) run(cmd *cobra.Command, args []string) error {
	d, err := parseTimeout(args[1])
	if err != nil {
		return usagef("%v", err)
	}
	if err := rehearseUpdate(cmd.Context(), &sandbox.UpdateOptions{Timeout: d}); err != nil {
		_, why, _ := strings.Cut(err.Error(), "Timeout: ")
		return usagef("%s: %s", args[1], first(why, err.Error()))
	}
	c.app.doubtTimeout(args[1])
	s, err := c.app.session(cmd.Context(), args[0])
	if err != nil {
		return err
	}
	if err := s.ExtendTimeout(cmd.Context(), d); err != nil {
		return err
	}
	i := s.Info()
	end := i.StartedAt.Add(i.Timeout)
	if c.app.opts.structured() {
		return c.app.print(output{doc: viewSession(i), names: []string{i.ID}})
	}
	fmt.Fprintf(c.app.err, "The session ends %s, at %s.\n", distance(&end, c.app.now()), end.Local().Format(time.TimeOnly))
	return nil
}
