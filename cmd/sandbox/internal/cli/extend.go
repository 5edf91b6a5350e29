package cli

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/go-vercel/sandbox/cmd/sandbox/internal/line"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/screen"
)

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
	fmt.Fprintf(c.screen.Err, "The session ends %s, at %s.\n", relativeTime(&end, c.screen.Now()), end.Local().Format(time.TimeOnly))
	return nil
}
