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
	// Timeout kills the command when it runs longer. Zero means no limit but
	// the session's. The exit code is then 137.
	Timeout time.Duration
	// Stdout and Stderr are written to as the output comes, by one goroutine at
	// a time: the same writer may be given for both and then sees the output in
	// its order. A slow writer slows the command down. A stream with a writer
	// is not kept in memory; [Command.Stdout] and [Command.Stderr] then fetch
	// it.
	Stdout, Stderr io.Writer
	// KillOnCancel kills the command with [SIGKILL] when the context of
	// RunCommand ends while it runs. Without it the command goes on, and only
	// the wait is over.
	KillOnCancel bool
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
	if err := errors.Join(checkText("Cwd", o.Cwd), checkEnv("Env", o.Env), checkDuration("Timeout", o.Timeout)); err != nil {
		return nil, err
	}
	b := &commandBody{Command: name, Args: args, Cwd: o.Cwd, Env: o.Env, Sudo: o.Sudo, Timeout: wire.Duration(o.Timeout)}
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
// The command is sent once. When nobody can know whether it started, the error
// matches [ErrOutcomeUnknown]. From its start on nothing is lost: when the
// connection breaks it is made again, each byte of the output is delivered
// once, and the exit code is the process's own. If that fails in the end, the
// error is a [*StreamError] with the command's ID.
//
// When ctx ends, RunCommand returns at once and the command goes on, unless
// KillOnCancel is set.
func (s *Session) RunCommand(ctx context.Context, name string, args []string, opts *CommandOptions) (*CommandResult, error) {
	var o CommandOptions
	if opts != nil {
		o = *opts
	}
	body, err := newCommandBody(name, args, &o)
	if err != nil {
		return nil, err
	}
	body.Wait, body.Logs = true, true
	c, err := s.client()
	if err != nil {
		return nil, err
	}
	session := s.ID()
	resp, err := c.stream(ctx, &api.Request{Op: api.RunCommand, Path: []string{session}, Body: body, Accept: ndjson})
	if err != nil {
		return nil, err
	}
	f := &follower{
		ctx: ctx, c: c, session: session, body: resp.Body, dec: wire.NewLogDecoder(resp.Body),
		waited: true, openedAt: time.Now(), lastGain: time.Now(), complete: [2]int64{-1, -1},
	}
	defer f.close()
	first, err := f.start()
	if err != nil {
		return nil, err
	}
	cmd := newCommand(c, session, *first)
	f.id = first.ID
	kept, err := f.deliver(&o)
	if err != nil {
		if o.KillOnCancel && ctx.Err() != nil {
			cmd.killNow(ctx)
		}
		return nil, err
	}
	cmd.data = *f.end
	cmd.kept = kept
	return finished(cmd), nil
}

// start reads the first record of a waited command's stream: the command. Until
// it has come nobody knows whether the command runs.
func (f *follower) start() (*wire.Command, error) {
	for {
		rec, err := f.dec.Next()
		switch {
		case err == nil && rec.Kind == wire.KindCommand && rec.Command.ID != "":
			if rec.Command.ExitCode != nil {
				f.end = rec.Command
			}
			return rec.Command, nil
		case err == nil && rec.Kind == wire.KindUnknown:
			continue
		case err == nil && rec.Kind == wire.KindError:
			return nil, f.streamError(rec.Error.Code, rec.Error.Message, nil)
		case err == nil:
			return nil, f.streamError("invalid_record", "the stream does not begin with the command", nil)
		case f.ctx.Err() != nil:
			return nil, &RequestError{Operation: api.RunCommand.Name, SessionID: f.session, Err: context.Cause(f.ctx), unknown: true}
		case isLineError(err):
			return nil, f.streamError("invalid_record", "the stream holds a line that is no log record", err)
		}
		if err == io.EOF {
			err = nil
		}
		return nil, f.streamError("stream_ended_early", "Stream ended before command data was received", err)
	}
}

// deliver writes the output to the writers, and returns what has none.
func (f *follower) deliver(o *CommandOptions) (*output, error) {
	kept := &output{noStdout: o.Stdout != nil, noStderr: o.Stderr != nil}
	for {
		stream, data, err := f.next()
		if err == io.EOF {
			// A stream of which nothing came is known, although it has a writer.
			kept.noStdout = kept.noStdout && f.delivered[0] > 0
			kept.noStderr = kept.noStderr && f.delivered[1] > 0
			return kept, nil
		}
		if err != nil {
			return nil, err
		}
		w := o.Stdout
		if stream == Stderr {
			w = o.Stderr
		}
		if w == nil {
			kept.addBytes(stream, data)
		} else if n, err := w.Write(data); err != nil || n < len(data) {
			if err == nil {
				err = io.ErrShortWrite
			}
			return nil, fmt.Errorf("sandbox: writing the %s of command %s: %w", stream, f.id, err)
		}
	}
}

// killNow kills a command whose context has ended.
func (c *Command) killNow(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	// The caller is told that the context ended; a kill that fails as well
	// would not help it.
	_ = c.Kill(ctx, SIGKILL)
}

// StartCommand starts a program with arguments and returns while it runs. A nil
// opts takes the defaults.
//
// With writers in opts the output is copied to them in the background until the
// command or ctx has ended; [Command.Wait] waits for that. Without any, nothing
// is read. The command is sent once; when nobody can know whether it started,
// the error matches [ErrOutcomeUnknown].
func (s *Session) StartCommand(ctx context.Context, name string, args []string, opts *CommandOptions) (*Command, error) {
	var o CommandOptions
	if opts != nil {
		o = *opts
	}
	body, err := newCommandBody(name, args, &o)
	if err != nil {
		return nil, err
	}
	var answer wire.CommandAnswer
	if err := s.do(ctx, api.StartCommand, body, &answer); err != nil {
		return nil, err
	}
	c, err := s.client()
	if err != nil {
		return nil, err
	}
	cmd := newCommand(c, s.ID(), answer.Command)
	if o.Stdout != nil || o.Stderr != nil {
		cmd.pump = startPump(ctx, c, cmd, &o)
	}
	return cmd, nil
}

// pump copies a command's output to its writers in the background.
type pump struct {
	done chan struct{}
	err  error
}

func startPump(ctx context.Context, c *Client, cmd *Command, o *CommandOptions) *pump {
	p := &pump{done: make(chan struct{})}
	f := newFollower(ctx, c, cmd)
	writers := *o
	if writers.Stdout == nil {
		writers.Stdout = io.Discard
	}
	if writers.Stderr == nil {
		writers.Stderr = io.Discard
	}
	go func() {
		defer close(p.done)
		defer f.close()
		if _, err := f.deliver(&writers); err != nil {
			if ctx.Err() != nil {
				if o.KillOnCancel {
					cmd.killNow(ctx)
				}
				// The caller ended the copying and knows it.
				return
			}
			p.err = err
		}
	}()
	return p
}

// wait waits for the copying to end. A nil pump has nothing to copy.
func (p *pump) wait(ctx context.Context) error {
	if p == nil {
		return nil
	}
	select {
	case <-p.done:
		return p.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// GetCommand looks up a command of this session by its ID.
func (s *Session) GetCommand(ctx context.Context, id string) (*Command, error) {
	if err := checkID(id); err != nil {
		return nil, err
	}
	c, err := s.client()
	if err != nil {
		return nil, err
	}
	data, err := c.getCommand(ctx, s.ID(), id, false)
	if err != nil {
		return nil, err
	}
	return newCommand(c, s.ID(), *data), nil
}

// ListCommands returns the session's commands, running and ended.
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

// GetCommand looks up a command of the current session by its ID, resuming the
// sandbox if it is stopped. A missing one matches [ErrNotFound]: commands of
// earlier sessions are found by [Session.GetCommand] of those.
func (s *Sandbox) GetCommand(ctx context.Context, id string) (*Command, error) {
	return withResume(ctx, s, func(cur *Session) (*Command, error) { return cur.GetCommand(ctx, id) })
}

// ListCommands returns the commands of the current session, running and ended,
// resuming the sandbox if it is stopped.
func (s *Sandbox) ListCommands(ctx context.Context) ([]*Command, error) {
	return withResume(ctx, s, func(cur *Session) ([]*Command, error) { return cur.ListCommands(ctx) })
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
