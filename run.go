package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/go-vercel/sandbox/internal/api"
	"github.com/go-vercel/sandbox/internal/redact"
	"github.com/go-vercel/sandbox/internal/wire"
)

// CommandOptions says how a command is run. The zero value runs it as the
// sandbox's user in the session's directory.
type CommandOptions struct {
	// Cwd is the directory to start in; empty means the session's.
	Cwd string
	// Env is added to the sandbox's environment. Values are never shown in
	// errors or logs.
	Env Env
	// Sudo runs the command as root.
	Sudo bool
	// Timeout, from 100 ms to 5 hours, kills the command when it runs longer;
	// its exit code is then 137. Zero means no limit but the session's.
	Timeout time.Duration
	// Stdout and Stderr are written to as the output comes, by one goroutine at
	// a time: the same writer may be given for both and then sees the output in
	// its order. A slow writer slows the command down. A stream with a writer
	// is not kept in memory; [Command.Stdout] and [Command.Stderr] then fetch
	// it.
	Stdout, Stderr io.Writer
	// KillOnCancel kills the command with [SIGKILL] when the context of
	// RunCommand or StartCommand ends while it runs, and when a writer fails.
	// Without it the command goes on, and only the wait is over. The call then
	// returns at most five seconds after the context has ended: when the API has
	// not answered the start by then, and the kill.
	KillOnCancel bool
	// ID identifies the command within its session: at most 64 letters, digits,
	// underscores and dashes. A program that keeps it finds the command again by
	// [Session.GetCommand], even if it was killed before it heard that the
	// command had started. It must not have been used in this session. Empty
	// makes one up; see [ClientOptions.ServerCommandIDs].
	ID string
	// AttachStdin leaves the standard input of a command of StartCommand open
	// for [Command.Stdin]. Without it the input is empty. A sandbox or a service
	// that does not know of it refuses the command; [Cmd] has another way then.
	AttachStdin bool
}

// Format shows the options without values that may be secret, whatever the verb.
func (o CommandOptions) Format(f fmt.State, verb rune) { redact.Struct(f, verb, o) }

type commandBody struct {
	Command string            `json:"command"`
	Args    []string          `json:"args"`
	Cwd     string            `json:"cwd,omitempty"`
	Env     map[string]string `json:"env"`
	Sudo    bool              `json:"sudo"`
	Wait    bool              `json:"wait,omitempty"`
	Logs    bool              `json:"logs,omitempty"`
	Timeout wire.Duration     `json:"timeout,omitzero"`
	Stdin   bool              `json:"attachStdin,omitempty"`
}

var noEnv = map[string]string{}

func newCommandBody(name string, args []string, o *CommandOptions) (*commandBody, error) {
	if name == "" {
		return nil, invalid("name", "is empty; the name of a program is needed")
	}
	if err := checkText("name", name); err != nil {
		return nil, err
	}
	for i, a := range args {
		if err := checkText("args", a); err != nil {
			return nil, fmt.Errorf("%w (number %d)", err, i+1)
		}
	}
	if err := errors.Join(
		checkText("Cwd", o.Cwd), checkEnv("Env", o.Env), checkRange("Timeout", o.Timeout, minCommandTimeout, maxCommandTimeout), checkCommandID(o.ID),
	); err != nil {
		return nil, err
	}
	b := &commandBody{Command: name, Args: args, Cwd: o.Cwd, Env: o.Env, Sudo: o.Sudo, Timeout: wire.Duration(o.Timeout), Stdin: o.AttachStdin}
	if b.Args == nil {
		b.Args = []string{}
	}
	if b.Env == nil {
		b.Env = noEnv
	}
	return b, nil
}

// RunCommand runs a program with arguments and waits for its end, streaming its
// output as it comes. A non-zero exit code is a result, not an error. A nil
// opts takes the defaults.
//
// The command is sent once. When its answer is lost, the command is looked for
// by its ID for five seconds and adopted if it is there; when nobody can know
// whether it started, the error matches [ErrOutcomeUnknown]. From its start on
// nothing is lost: when the connection breaks it is made again, each byte of the
// output is delivered once, and the exit code is the process's own. If that
// fails in the end, or if a writer does, the error is a [*StreamError] with the
// command's ID.
//
// When ctx ends, RunCommand returns at once, except that a Write under way is
// waited for, and the command goes on, unless KillOnCancel is set.
func (s *Session) RunCommand(ctx context.Context, name string, args []string, opts *CommandOptions) (*CommandResult, error) {
	var o CommandOptions
	if opts != nil {
		o = *opts
	}
	l, err := s.newLaunch(name, args, &o)
	if err != nil {
		return nil, err
	}
	if o.AttachStdin {
		return nil, invalid("AttachStdin", "is for StartCommand: the input is written while the command runs")
	}
	l.body.Wait, l.body.Logs = true, true
	open, known, release := opening(ctx, &o)
	defer release()
	f, first, err := l.waited(ctx, open)
	if err != nil {
		if o.KillOnCancel {
			l.killUnknown(ctx, err)
		}
		return nil, err
	}
	defer f.Close()
	known()
	cmd := newCommand(l.c, l.session, *first)
	kept, err := f.deliver(&o)
	if err != nil {
		if e, ok := err.(*StreamError); o.KillOnCancel && (ctx.Err() != nil || ok && e.Code == codeWriteFailed) {
			cmd.killLate(ctx)
		}
		return nil, err
	}
	if end := f.End(); end != nil {
		cmd.data = *end
	}
	cmd.kept = kept
	return finished(cmd), nil
}

// startFollowed starts a waited command, and returns it with its stream when the
// first record has come.
func (s *Session) startFollowed(ctx context.Context, name string, args []string, o *CommandOptions) (*Command, *follower, error) {
	l, err := s.newLaunch(name, args, o)
	if err != nil {
		return nil, nil, err
	}
	l.body.Wait, l.body.Logs = true, true
	f, first, err := l.waited(ctx, ctx)
	if err != nil {
		return nil, nil, err
	}
	return newCommand(l.c, l.session, *first), f, nil
}

// StartCommand starts a program with arguments and returns while it runs. A nil
// opts takes the defaults.
//
// With writers in opts the output is copied to them in the background until the
// command or ctx has ended; [Command.Wait] waits for that. Without any, nothing
// is read. The command is sent once; when its answer is lost it is looked for as
// by RunCommand.
func (s *Session) StartCommand(ctx context.Context, name string, args []string, opts *CommandOptions) (*Command, error) {
	var o CommandOptions
	if opts != nil {
		o = *opts
	}
	l, err := s.newLaunch(name, args, &o)
	if err != nil {
		return nil, err
	}
	open, _, release := opening(ctx, &o)
	defer release()
	data, err := l.detached(open)
	if err != nil {
		if o.KillOnCancel {
			l.killUnknown(ctx, err)
		}
		return nil, err
	}
	cmd := newCommand(l.c, l.session, *data)
	cmd.stdinKnown = o.AttachStdin
	switch {
	case o.KillOnCancel && ctx.Err() != nil:
		cmd.killLate(ctx)
		return nil, &RequestError{Operation: api.StartCommand.Name, SessionID: l.session, Err: api.ContextError(ctx)}
	case o.Stdout != nil || o.Stderr != nil:
		cmd.pump = startPump(ctx, l.c, cmd, &o)
	case o.KillOnCancel:
		context.AfterFunc(ctx, func() {
			if _, over := cmd.ExitStatus(); !over {
				cmd.killLate(ctx)
			}
		})
	}
	return cmd, nil
}

// GetCommand looks up a command of this session by its ID. Whether it has ended
// is asked for too, which takes a second request, of up to a quarter of a second
// or twice the time of the first, where it runs. A missing command matches
// [ErrNotFound].
func (s *Session) GetCommand(ctx context.Context, id string) (*Command, error) {
	if err := checkID(id); err != nil {
		return nil, err
	}
	c, err := s.client()
	if err != nil {
		return nil, err
	}
	data, err := c.lookAtCommand(ctx, s.ID(), id)
	if err != nil {
		return nil, err
	}
	return newCommand(c, s.ID(), *data), nil
}

// ListCommands returns the session's commands, running and ended, in one
// request. The service tells of a command's end only to those who ask for it:
// ExitStatus of one that has ended may not know it yet. [Session.GetCommand] and
// [Command.Wait] do.
func (s *Session) ListCommands(ctx context.Context) ([]*Command, error) {
	c, err := s.client()
	if err != nil {
		return nil, err
	}
	var answer wire.CommandsAnswer
	if err := s.do(ctx, api.ListCommands, nil, &answer); err != nil {
		return nil, err
	}
	cmds := make([]*Command, len(answer.Commands))
	for i, data := range answer.Commands {
		cmds[i] = newCommand(c, s.ID(), data)
	}
	return cmds, nil
}

// RunCommand runs a program with arguments in the current session, resuming the
// sandbox if it is stopped, and waits for its end. See [Session.RunCommand].
func (s *Sandbox) RunCommand(ctx context.Context, name string, args []string, opts *CommandOptions) (*CommandResult, error) {
	return withResume(ctx, s, func(cur *Session) (*CommandResult, error) { return cur.RunCommand(ctx, name, args, opts) })
}

// StartCommand starts a program with arguments in the current session, resuming
// the sandbox if it is stopped. See [Session.StartCommand].
func (s *Sandbox) StartCommand(ctx context.Context, name string, args []string, opts *CommandOptions) (*Command, error) {
	return withResume(ctx, s, func(cur *Session) (*Command, error) { return cur.StartCommand(ctx, name, args, opts) })
}

// GetCommand looks up a command of the current session by its ID; see
// [Session.GetCommand]. It does not resume the sandbox: the commands of a session
// that was stopped are gone with it, and the error then matches [ErrStopped].
func (s *Sandbox) GetCommand(ctx context.Context, id string) (*Command, error) {
	return lookAt(ctx, s, func(cur *Session) (*Command, error) { return cur.GetCommand(ctx, id) })
}

// ListCommands returns the commands of the current session, running and ended;
// see [Session.ListCommands]. It does not resume the sandbox, as
// [Sandbox.GetCommand] does not.
func (s *Sandbox) ListCommands(ctx context.Context) ([]*Command, error) {
	return lookAt(ctx, s, func(cur *Session) ([]*Command, error) { return cur.ListCommands(ctx) })
}

// output holds what a command wrote, in the order in which it came.
type output struct {
	text     strings.Builder
	segments []segment
	// A stream that went to a writer is not here.
	noStdout, noStderr bool
}

// segment is a run of bytes of one stream.
type segment struct {
	stream LogStream
	length int
}

func (o *output) add(stream LogStream, data string) {
	o.text.WriteString(data)
	o.mark(stream, len(data))
}

func (o *output) addBytes(stream LogStream, data []byte) {
	o.text.Write(data)
	o.mark(stream, len(data))
}

func (o *output) mark(stream LogStream, n int) {
	if last := len(o.segments) - 1; last >= 0 && o.segments[last].stream == stream {
		o.segments[last].length += n
		return
	}
	o.segments = append(o.segments, segment{stream, n})
}

func (o *output) stdout() (string, bool) { return o.only(Stdout), !o.noStdout }
func (o *output) stderr() (string, bool) { return o.only(Stderr), !o.noStderr }
func (o *output) both() (string, bool)   { return o.text.String(), !o.noStdout && !o.noStderr }

func (o *output) only(stream LogStream) string {
	text := o.text.String()
	switch {
	case len(o.segments) == 0:
		return ""
	case len(o.segments) == 1:
		if o.segments[0].stream == stream {
			return text
		}
		return ""
	}
	var b strings.Builder
	for _, seg := range o.segments {
		if seg.stream == stream {
			b.WriteString(text[:seg.length])
		}
		text = text[seg.length:]
	}
	return b.String()
}
