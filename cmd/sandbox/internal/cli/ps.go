package cli

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/line"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/screen"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/table"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/units"
)

// session returns the sandbox's current session, without starting one.
func (p *deps) session(ctx context.Context, name string) (*sandbox.Session, error) {
	sb, err := p.account.Named(ctx, name, false)
	if err != nil {
		return nil, err
	}
	if status := sb.Status(); status != sandbox.StatusRunning {
		return nil, &screen.ExitError{Code: screen.ExitConflict, Err: screen.WithHint(fmt.Errorf("sandbox %s is not running (its status is %s)", name, status),
			"its commands ended with its session; %s starts it again", screen.Try("exec %s -- COMMAND", name))}
	}
	return sb.CurrentSession(), nil
}

// remoteCommand finds a command by its ID. If id is empty, it returns the command that was
// started last.
func (p *deps) remoteCommand(ctx context.Context, name, id string) (*sandbox.Command, error) {
	s, err := p.session(ctx, name)
	if err != nil {
		return nil, err
	}
	if id != "" {
		return s.GetCommand(ctx, id)
	}
	all, err := s.ListCommands(ctx)
	if err != nil {
		return nil, err
	}
	if len(all) == 0 {
		return nil, &screen.ExitError{Code: screen.ExitNotFound, Err: fmt.Errorf("no command was started in sandbox %s", name)}
	}
	return slices.MaxFunc(all, func(a, b *sandbox.Command) int { return a.StartedAt().Compare(b.StartedAt()) }), nil
}

type psCommand struct {
	deps

	all bool
}

func (c *psCommand) command() *line.Command {
	return &line.Command{
		Name: "ps", Title: titleCommands, Short: "List the commands of a sandbox",
		Long: "List the running commands of a sandbox. With --all, also list those that have ended in its current session.",
		Args: []line.Argument{line.NameArg},
		Options: func(flags *pflag.FlagSet) {
			line.Toggle(flags, &c.all, "all", "a", "Show commands that have ended as well")
		},
		Example: "ps my-app", Doc: []commandView{}, Run: c.run,
	}
}

func (c *psCommand) run(cmd *cobra.Command, args []string) error {
	s, err := c.session(cmd.Context(), args[0])
	if err != nil {
		return err
	}
	found, err := s.ListCommands(cmd.Context())
	if err != nil {
		return err
	}
	updateStatuses(cmd.Context(), found)
	slices.SortFunc(found, func(a, b *sandbox.Command) int { return b.StartedAt().Compare(a.StartedAt()) })
	var views []commandView
	for _, command := range found {
		if v := viewCommand(command); c.all || v.ExitCode == nil {
			views = append(views, v)
		}
	}
	ans := screen.List(views, func(v commandView) string { return v.ID }, c.commandTable)
	ans.Empty = "No commands are running."
	return c.screen.Print(ans)
}

// statusTimeout limits the time that ps waits for the status of one command.
const statusTimeout = 500 * time.Millisecond

// updateStatuses finds out which commands have ended. Because listings contain no exit
// codes, it waits briefly for each command.
func updateStatuses(ctx context.Context, commands []*sandbox.Command) {
	var open []*sandbox.Command
	var ids []string
	for _, c := range commands {
		if _, ended := c.ExitStatus(); !ended {
			open, ids = append(open, c), append(ids, c.ID())
		}
	}
	forEach(ids, func(i int, _ string) (struct{}, error) {
		ctx, cancel := context.WithTimeout(ctx, statusTimeout)
		defer cancel()
		_, err := open[i].Wait(ctx) // for a running command, this times out
		return struct{}{}, err
	})
}

func (c *psCommand) commandTable(views []commandView) *table.Table {
	t := table.New("ID", "STATUS", "STARTED", "DURATION", "COMMAND")
	t.Least = []string{"STARTED"}
	now := c.screen.Now()
	for _, v := range views {
		status, duration := statusCell(sandbox.StatusRunning), "-"
		if v.ExitCode != nil {
			status = table.Cell{Text: "exited " + strconv.Itoa(*v.ExitCode), Style: statusStyles[sandbox.StatusStopped]}
			duration = cpuText(v.Duration)
		} else if v.StartedAt != nil {
			duration = units.Run(now.Sub(*v.StartedAt).Truncate(time.Second))
		}
		t.Row(v.ID, status, relativeTime(v.StartedAt, now), duration, line.ShellWords(append([]string{v.Name}, v.Args...)))
	}
	return t
}
