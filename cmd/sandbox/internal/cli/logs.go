package cli

import (
	"context"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/line"
)

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
