package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/go-vercel/sandbox/internal/api"
	"github.com/go-vercel/sandbox/internal/engine"
	"github.com/go-vercel/sandbox/internal/redact"
	"github.com/go-vercel/sandbox/internal/wire"
	"github.com/go-vercel/sandbox/observe"
)

// Command is a process in a sandbox, running or ended. It belongs to one
// session and does not outlive it.
//
// A Command is returned by [Sandbox.StartCommand], [Sandbox.GetCommand] and
// [Sandbox.ListCommands], or read from JSON. It is safe for concurrent use.
type Command struct {
	session string // ID
	// token is the value of the variable that identifies the process in the sandbox. It is
	// empty if another handle has started the process.
	token string
	// limit is how long the command may run, if this handle has started it.
	limit time.Duration

	bound
	data wire.Command
	// cached is the output, if this handle holds it.
	cached *output
	// fetching is not nil while a call fetches the output. That call closes the channel.
	fetching chan struct{}
	// pump copies the output of a detached command to its writers. It is nil without
	// writers.
	pump *pump
	// release, if not nil, stops the goroutine that kills the command when its context ends.
	release func() bool
	// stdinOpen is set while there is a writer for standard input. stdinAt is the
	// position of the next byte if stdinKnown is set. stdinNone is set for a command that
	// was started without standard input.
	stdinOpen, stdinKnown, stdinNone bool
	stdinAt                          int64
	stdinLost                        lostInput // of the last writer
}

// CommandResult is a command that has ended. A non-zero exit code is a result
// like any other, not an error.
type CommandResult struct {
	// Command is the command, whose output can be read again.
	Command *Command
	// ExitCode is the process's exit code: 128 plus the signal's number if it
	// was ended by a signal.
	ExitCode int
	// Duration is how long it ran; zero if the API did not report it.
	Duration time.Duration
	// TimedOut is set if the command had run as long as its Timeout and was ended by SIGKILL.
	// The service itself does not say why a command ended. TimedOut is set only for a Command
	// that this process has started, not for one that was looked up.
	TimedOut bool
}

// Format prints how the command ended, for every verb.
func (c *CommandResult) Format(f fmt.State, verb rune) {
	if c == nil || c.Command == nil {
		redact.String(f, verb, "command (none)")
		return
	}
	text := fmt.Sprintf("%v: exit code %d", c.Command, c.ExitCode)
	if c.Duration > 0 {
		text += fmt.Sprintf(" after %v", c.Duration)
	}
	if c.TimedOut {
		text += ", killed at the end of its Timeout"
	}
	redact.String(f, verb, text)
}

func newCommand(c *Client, session string, data wire.Command) *Command {
	return &Command{bound: bound{c: c}, session: session, data: data}
}

var errZeroCommand = fmt.Errorf("sandbox: %w: the Command was not made by a Sandbox or from JSON", ErrInvalid)

func (c *Command) client() (*Client, error) {
	if c == nil {
		return nil, errZeroCommand
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.data.ID == "" {
		return nil, errZeroCommand
	}
	if err := checkRoute(&api.Request{Op: api.GetCommand, Path: []string{c.session, c.data.ID}}); err != nil {
		return nil, err
	}
	return c.clientLocked()
}

func (c *Command) wire() wire.Command {
	if c == nil {
		return wire.Command{}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.data
}

// ID returns the command's ID, with which [Sandbox.GetCommand] finds it again.
func (c *Command) ID() string { return c.wire().ID }

// SessionID returns the ID of the session that the command runs in.
func (c *Command) SessionID() string {
	if c == nil {
		return ""
	}
	return c.session
}

// Name returns the program's name.
func (c *Command) Name() string {
	w := c.wire()
	name, _, _ := unwrapBinary(w.Name, w.Args)
	return name
}

// Args returns the program's arguments, without its name.
func (c *Command) Args() []string {
	w := c.wire()
	name, args, _ := unwrapBinary(w.Name, w.Args)
	return slices.Clone(engine.Unmarked(name, args))
}

// binary reports whether the command was started with [CommandOptions.Binary].
func (c *Command) binary() bool {
	w := c.wire()
	_, _, ok := unwrapBinary(w.Name, w.Args)
	return ok
}

// Cwd returns the directory that the command was started in.
func (c *Command) Cwd() string { return c.wire().Cwd }

// StartedAt returns when the command was started.
func (c *Command) StartedAt() time.Time { return c.wire().StartedAt.Time }

// Elapsed returns how long the command ran. It reports false until the command is known to
// have ended. It makes no request.
func (c *Command) Elapsed() (time.Duration, bool) {
	d := c.wire().DurationMs
	if d == nil {
		return 0, false
	}
	return time.Duration(*d), true
}

// ExitStatus returns the exit code, and reports whether the command is known to
// have ended. It makes no request; use [Command.Wait] to find out.
func (c *Command) ExitStatus() (code int, exited bool) {
	if e := c.wire().ExitCode; e != nil {
		return *e, true
	}
	return 0, false
}

// Format prints the command's ID and program, for every verb. Arguments are
// omitted, since they may hold secrets.
func (c *Command) Format(f fmt.State, verb rune) {
	w := c.wire()
	redact.String(f, verb, fmt.Sprintf("command %s (%s)", w.ID, c.Name()))
}

// LogValue implements [slog.LogValuer].
func (c *Command) LogValue() slog.Value {
	w := c.wire()
	return slog.GroupValue(slog.String("id", w.ID), slog.String("name", c.Name()))
}

// Wait waits for the command to end, and for its output to be written to the writers given
// to [Sandbox.StartCommand], if any. If ctx ends, it returns at once, and the command
// continues. If the output could not be copied completely, Wait returns the result along
// with the error: that of a writer, of the stream, or of the context of StartCommand. It
// makes one request, and two more for each minute that the command continues. Failed
// requests are retried within the limits of [ReattachOptions].
//
// It makes no request if the command is known to have ended, from an earlier Wait or
// because its output was read to the end.
func (c *Command) Wait(ctx context.Context) (*CommandResult, error) {
	client, err := enter(ctx, c)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	p := c.pump
	c.mu.Unlock()
	data := p.waitEnd(ctx)
	if known := c.wire(); data == nil && known.ExitCode != nil {
		data = &known
	}
	if data == nil {
		waiting, e := client.api.Begin(ctx, observe.Event{Kind: observe.Wait, Session: c.session, Command: c.ID(), Program: c.Name()})
		data, err = client.waitCommand(waiting, c.session, c.ID())
		setExit(&e, data)
		endEvent(&e, err)
		if err != nil {
			return nil, err
		}
	}
	done := c.finish(*data)
	return done, p.wait(ctx)
}

// WaitOutput waits until the output was written to the writers given to
// [Sandbox.StartCommand], or the context of that call has ended. It returns the error of a
// writer, of the stream or of that context. Nil means that all output was written. It
// makes no request, and returns at once if there are no writers.
func (c *Command) WaitOutput(ctx context.Context) error {
	if _, err := enter(ctx, c); err != nil {
		return err
	}
	c.mu.Lock()
	p := c.pump
	c.mu.Unlock()
	return p.wait(ctx)
}

// Done returns a channel that is closed when [Command.Wait] would return, for use in a
// select: after the command or ctx has ended, or after an error. Wait then returns the
// result, without a request if the command has ended. Done makes the requests of Wait in a
// goroutine, which ends when Wait would return.
func (c *Command) Done(ctx context.Context) <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = c.Wait(ctx) // a later Wait has the error
	}()
	return done
}

// finish records how the command ended.
func (c *Command) finish(data wire.Command) *CommandResult {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.data = data
	if c.release != nil && data.ExitCode != nil {
		c.release() // a context may outlive many commands
		c.release = nil
	}
	return finished(c)
}

// finished returns the result of an ended command.
func finished(c *Command) *CommandResult {
	done := &CommandResult{Command: c}
	if c.data.ExitCode != nil {
		done.ExitCode = *c.data.ExitCode
	}
	if c.data.DurationMs != nil {
		done.Duration = time.Duration(*c.data.DurationMs)
	}
	done.TimedOut = c.limit > 0 && done.ExitCode == 128+int(SIGKILL) && done.Duration >= c.limit
	return done
}

// LogValue implements [slog.LogValuer].
func (c *CommandResult) LogValue() slog.Value {
	if c == nil || c.Command == nil {
		return slog.StringValue("command (none)")
	}
	return slog.GroupValue(append(c.Command.LogValue().Group(), slog.Int("exitCode", c.ExitCode), slog.Duration("duration", c.Duration))...)
}

// Stdout is short for [Command.Stdout].
func (c *CommandResult) Stdout(ctx context.Context) (string, error) { return c.command().Stdout(ctx) }

// Stderr is short for [Command.Stderr].
func (c *CommandResult) Stderr(ctx context.Context) (string, error) { return c.command().Stderr(ctx) }

// CombinedOutput is short for [Command.CombinedOutput].
func (c *CommandResult) CombinedOutput(ctx context.Context) (string, error) {
	return c.command().CombinedOutput(ctx)
}

// command returns the command; nil if there is none.
func (c *CommandResult) command() *Command {
	if c == nil {
		return nil
	}
	return c.Command
}

func (c *CommandResult) bind(client *Client) { client.Bind(c.Command) }

// Stdout waits for the command to end and returns its standard output. If the output went
// to a writer or the command was detached, it is fetched with the requests of
// [Command.Logs], once for all callers, and held in memory. Use Logs or a writer for large
// output.
func (c *Command) Stdout(ctx context.Context) (string, error) {
	return c.output(ctx, (*output).stdout)
}

// Stderr is like [Command.Stdout], but returns standard error.
func (c *Command) Stderr(ctx context.Context) (string, error) {
	return c.output(ctx, (*output).stderr)
}

// CombinedOutput is like [Command.Stdout], but returns standard output and
// standard error in the order in which they arrived.
func (c *Command) CombinedOutput(ctx context.Context) (string, error) {
	return c.output(ctx, (*output).both)
}

func (c *Command) output(ctx context.Context, get func(*output) (string, bool)) (string, error) {
	if _, err := enter(ctx, c); err != nil {
		return "", err
	}
	for {
		c.mu.Lock()
		if c.cached != nil {
			if text, ok := get(c.cached); ok {
				c.mu.Unlock()
				return text, nil
			}
		}
		busy := c.fetching
		if busy == nil {
			c.fetching = make(chan struct{})
		}
		c.mu.Unlock()
		if busy == nil {
			break
		}
		select {
		case <-busy:
			// cached shows whether the other call succeeded.
		case <-ctx.Done():
			return "", api.ContextError(ctx)
		}
	}
	all := &output{}
	var err error
	for chunk, chunkErr := range c.LogChunks(ctx) {
		if err = chunkErr; err == nil {
			all.add(chunk.Stream, chunk.Data)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	close(c.fetching)
	c.fetching = nil
	if err != nil {
		return "", err
	}
	c.cached = all
	text, _ := get(all)
	return text, nil
}

// serializedCommand has the shape of the JavaScript SDK's serialized Command
// and CommandResult.
type serializedCommand struct {
	SandboxID string             `json:"sandboxId"`
	Cmd       wire.Command       `json:"cmd"`
	Output    *serializedStreams `json:"output,omitempty"`
	ExitCode  *int               `json:"exitCode,omitempty"`
	Duration  *wire.Duration     `json:"durationMs,omitempty"`
}

type serializedStreams struct {
	Stdout string `json:"stdout"`
	Stderr string `json:"stderr"`
}

func (c *Command) serialized() serializedCommand {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := serializedCommand{SandboxID: c.session, Cmd: c.data}
	if c.cached != nil {
		stdout, ok1 := c.cached.stdout()
		stderr, ok2 := c.cached.stderr()
		if ok1 && ok2 {
			s.Output = &serializedStreams{stdout, stderr}
		}
	}
	return s
}

func (c *Command) revive(s *serializedCommand) error {
	if s.Cmd.ID == "" || s.SandboxID == "" {
		return errors.New("sandbox: JSON is not a serialized command: cmd.id or sandboxId is missing")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.c, c.session, c.data, c.cached = nil, s.SandboxID, s.Cmd, nil
	if s.Output != nil {
		c.cached = &output{}
		c.cached.add(Stdout, []byte(s.Output.Stdout))
		c.cached.add(Stderr, []byte(s.Output.Stderr))
	}
	return nil
}

// MarshalJSON encodes the handle in the JavaScript SDK's serialized form,
// including the output if it is held in memory.
func (c *Command) MarshalJSON() ([]byte, error) {
	if c == nil {
		return nil, errZeroCommand
	}
	return json.Marshal(c.serialized())
}

// UnmarshalJSON decodes a handle. It uses [DefaultClient] unless
// [Client.Bind] is called.
func (c *Command) UnmarshalJSON(data []byte) error {
	var s serializedCommand
	if err := json.Unmarshal(data, &s); err != nil {
		return err
	}
	return c.revive(&s)
}

// MarshalJSON encodes the handle in the JavaScript SDK's serialized form,
// including the output if it is held in memory.
func (c CommandResult) MarshalJSON() ([]byte, error) {
	if c.Command == nil {
		return nil, fmt.Errorf("sandbox: %w: the CommandResult was not made by a Sandbox or from JSON", ErrInvalid)
	}
	s := c.Command.serialized()
	s.ExitCode = &c.ExitCode
	s.Duration = s.Cmd.DurationMs
	return json.Marshal(s)
}

// UnmarshalJSON decodes a handle, like that of [Command].
func (c *CommandResult) UnmarshalJSON(data []byte) error {
	var s serializedCommand
	if err := json.Unmarshal(data, &s); err != nil {
		return err
	}
	if s.ExitCode != nil {
		s.Cmd.ExitCode = s.ExitCode
	}
	if s.Duration != nil {
		s.Cmd.DurationMs = s.Duration
	}
	c.Command = &Command{}
	if err := c.Command.revive(&s); err != nil {
		return err
	}
	*c = *finished(c.Command)
	return nil
}
