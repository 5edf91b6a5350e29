package cli

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"syscall"
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
	name, err := p.account.CheckedName(name)
	if err != nil {
		return nil, err
	}
	sb, err := p.account.Get(ctx, name, false)
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
	name, err := c.account.CheckedName(args[0])
	if err != nil {
		return err
	}
	s, err := c.session(cmd.Context(), name)
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

type logsCommand struct {
	deps

	follow bool
	tail   int
	stream string
}

func (c *logsCommand) command() *line.Command {
	return &line.Command{
		Name: "logs", Title: titleCommands, Short: "Show the output of a command",
		Long: "Show what a command has written so far. Without an ID, it is the command that was started last. " +
			"Its standard output and standard error go to those of this program.",
		Args:    []line.Argument{line.NameArg, {Name: "command_id", Text: line.CommandIDArg.Text + "; the one that was started last by default", Optional: true}},
		Options: c.define, Example: "logs my-app --follow", Run: c.run,
	}
}

func (c *logsCommand) define(flags *pflag.FlagSet) {
	line.Toggle(flags, &c.follow, "follow", "f", "Continue until the command has ended")
	line.Option(flags, &c.tail, "tail", "n", "number", "", "Show only the last lines", line.ParsePositive)
	line.Choice(flags, &c.stream, "stream", "", "stream", "Show only stdout or stderr", "stdout", "stderr")
}

func (c *logsCommand) run(cmd *cobra.Command, args []string) error {
	id := ""
	if len(args) == 2 {
		id = args[1]
	}
	remote, err := c.remoteCommand(cmd.Context(), args[0], id)
	if err != nil {
		return err
	}
	l := &logReader{deps: c.deps, command: remote, follow: c.follow, stream: c.stream, tail: c.tail}
	return l.run(cmd.Context())
}

// logReader shows the output of a command.
type logReader struct {
	deps
	command *sandbox.Command
	follow  bool
	stream  string
	tail    int

	last []tailLine // the last lines of the output, with --tail
}

type tailLine struct {
	stream string
	text   strings.Builder
}

func (l *logReader) run(ctx context.Context) error {
	entries := l.command.Logs(ctx)
	if _, ended := l.command.ExitStatus(); !ended && !l.follow {
		entries = soFar(ctx, l.command.Logs)
	}
	for e, err := range entries {
		if err != nil {
			return err
		}
		if l.stream != "" && e.Stream != l.stream {
			continue
		}
		if l.tail > 0 && !l.follow {
			l.keep(e)
			continue
		}
		if err := l.write(e.Stream, e.Data); err != nil {
			return err
		}
	}
	for i := range l.last {
		if err := l.write(l.last[i].stream, l.last[i].text.String()); err != nil {
			return err
		}
	}
	return nil
}

func (l *logReader) write(stream, text string) error {
	w := l.screen.Out.Raw
	if stream == sandbox.Stderr {
		w = l.screen.Err.Raw
	}
	_, err := io.WriteString(w, text)
	return err
}

// keep keeps the last lines of the output so far.
func (l *logReader) keep(e sandbox.LogEntry) {
	for part := range strings.Lines(e.Data) {
		n := len(l.last)
		if n == 0 || l.last[n-1].stream != e.Stream || strings.HasSuffix(l.last[n-1].text.String(), "\n") {
			l.last = append(l.last, tailLine{stream: e.Stream})
			n++
		}
		l.last[n-1].text.WriteString(part)
	}
	if extra := len(l.last) - l.tail; extra > 0 {
		l.last = slices.Delete(l.last, 0, extra)
	}
}

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
