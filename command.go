package sandbox

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/go-vercel/sandbox/internal/api"
	"github.com/go-vercel/sandbox/internal/coreutils"
	"github.com/go-vercel/sandbox/internal/redact"
	"github.com/go-vercel/sandbox/internal/wire"
)

// Command is a process in a sandbox, running or ended. It belongs to one
// session: a command of a session that was stopped is over.
//
// A Command comes from [Sandbox.StartCommand], [Sandbox.GetCommand] or
// [Sandbox.ListCommands], or from JSON. It is safe for concurrent use.
type Command struct {
	session string // ID

	mu   sync.Mutex
	c    *Client // nil until needed, for handles from JSON
	data wire.Command
	// kept is the output, when it was kept or has been fetched.
	kept *output
	// fetching is held by the call that fetches the output.
	fetching chan struct{}
	// pump copies the output of a detached command to its writers; nil when
	// there are none.
	pump *pump
	// stdinOpen: there is a writer for the standard input. stdinAt is the
	// position of the next byte, if stdinKnown.
	stdinOpen, stdinKnown bool
	stdinAt               int64
}

// CommandResult is a command that has ended. A non-zero exit code is a result
// like any other, not an error.
type CommandResult struct {
	*Command
	// ExitCode is the process's exit code; 128 plus the signal's number when a
	// signal ended it.
	ExitCode int
	// Duration is how long it ran; 0 when the API did not say.
	Duration time.Duration
}

// LogStream names one of a command's output streams. The API may add further
// values.
type LogStream string

// A command's output streams.
const (
	Stdout LogStream = "stdout"
	Stderr LogStream = "stderr"
)

// LogEntry is a piece of a command's output. From [Command.Logs] it is what the
// API sent, which need not be a whole line, nor only one; from [Command.Lines]
// it is one line without its end.
type LogEntry struct {
	Stream LogStream
	Data   string
}

// LogChunk is a LogEntry whose data is valid for one turn of a loop over
// [Command.LogChunks]. The loop may change it, but must copy what it keeps.
type LogChunk struct {
	Stream LogStream
	Data   []byte
}

// Signal is the number of a Linux signal.
type Signal int

// The signals that the API names; others may be given by number.
const (
	SIGHUP  Signal = 1
	SIGINT  Signal = 2
	SIGQUIT Signal = 3
	SIGKILL Signal = 9
	SIGTERM Signal = 15
	SIGCONT Signal = 18
	SIGSTOP Signal = 19
)

var signalNames = map[Signal]string{
	SIGHUP: "SIGHUP", SIGINT: "SIGINT", SIGQUIT: "SIGQUIT", SIGKILL: "SIGKILL", SIGTERM: "SIGTERM", SIGCONT: "SIGCONT", SIGSTOP: "SIGSTOP",
}

// String returns the signal's name, or its number when it has none here.
func (s Signal) String() string {
	if name, ok := signalNames[s]; ok {
		return name
	}
	return fmt.Sprintf("signal %d", int(s))
}

// Signal makes a Signal an [os.Signal].
func (s Signal) Signal() {}

// ParseSignal returns the signal of a name such as "SIGTERM".
func ParseSignal(name string) (Signal, error) {
	for s, n := range signalNames {
		if n == name {
			return s, nil
		}
	}
	return 0, invalid("signal", "Unknown signal name: %s", name)
}

func newCommand(c *Client, session string, data wire.Command) *Command {
	return &Command{c: c, session: session, data: data}
}

// SetClient makes a handle that came from JSON use c instead of [DefaultClient].
func (c *Command) SetClient(client *Client) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.c = client
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
	if c.c == nil {
		client, err := DefaultClient()
		if err != nil {
			return nil, err
		}
		c.c = client
	}
	return c.c, nil
}

func (c *Command) wire() wire.Command {
	if c == nil {
		return wire.Command{}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.data
}

// ID returns the command's ID, by which [Sandbox.GetCommand] finds it again.
func (c *Command) ID() string { return c.wire().ID }

// SessionID returns the ID of the session that it runs in.
func (c *Command) SessionID() string { return c.session }

// Name returns the program's name.
func (c *Command) Name() string { return c.wire().Name }

// Args returns the program's arguments, without its name.
func (c *Command) Args() []string { return slices.Clone(c.wire().Args) }

// Cwd returns the directory that it was started in.
func (c *Command) Cwd() string { return c.wire().Cwd }

// StartedAt returns when it was started.
func (c *Command) StartedAt() time.Time { return c.wire().StartedAt.Time }

// Elapsed returns how long it ran, and false when that is not known.
func (c *Command) Elapsed() (time.Duration, bool) {
	d := c.wire().DurationMs
	if d == nil {
		return 0, false
	}
	return time.Duration(*d), true
}

// ExitStatus returns the exit code, and false while the command is not known to
// have ended. It makes no request; [Command.Wait] does.
func (c *Command) ExitStatus() (code int, exited bool) {
	if e := c.wire().ExitCode; e != nil {
		return *e, true
	}
	return 0, false
}

// String describes the handle by its ID and program. Arguments are left out:
// they may hold secrets.
func (c *Command) String() string {
	w := c.wire()
	return fmt.Sprintf("command %s (%s)", w.ID, w.Name)
}

// Format writes String, whatever the verb: the insides are of no use in a log.
func (c *Command) Format(f fmt.State, verb rune) { redact.String(f, verb, c.String()) }

// LogValue describes the handle for log/slog.
func (c *Command) LogValue() slog.Value {
	w := c.wire()
	return slog.GroupValue(slog.String("id", w.ID), slog.String("name", w.Name))
}

// Logs iterates over the command's output from its start, and goes on until the
// command has ended. Any number of iterations may go on at once. A connection
// that breaks is made again and the output continued where it stopped: each
// byte comes once. Breaking out of the loop closes the connection. An error, a
// [*StreamError] with the command's ID or that of ctx, is the last thing that
// is yielded. Nothing is kept, and a slow loop slows the sender down.
func (c *Command) Logs(ctx context.Context) iter.Seq2[LogEntry, error] {
	return func(yield func(LogEntry, error) bool) {
		for chunk, err := range c.LogChunks(ctx) {
			if !yield(LogEntry{Stream: chunk.Stream, Data: string(chunk.Data)}, err) {
				return
			}
		}
	}
}

// Lines iterates over the command's output as [Command.Logs] does, a whole line
// at a time, without the newline (and a carriage return before it). Lines of
// one stream come in their order; a line that is not ended by a newline comes
// when the stream has ended. A line is held in memory until it is whole.
func (c *Command) Lines(ctx context.Context) iter.Seq2[LogEntry, error] {
	return func(yield func(LogEntry, error) bool) {
		begun := map[LogStream][]byte{}
		line := func(stream LogStream, text []byte) bool {
			return yield(LogEntry{Stream: stream, Data: string(bytes.TrimSuffix(text, []byte("\r")))}, nil)
		}
		for chunk, err := range c.LogChunks(ctx) {
			if err != nil {
				yield(LogEntry{}, err)
				return
			}
			rest := chunk.Data
			for {
				i := bytes.IndexByte(rest, '\n')
				if i < 0 {
					break
				}
				text := rest[:i]
				if held := begun[chunk.Stream]; len(held) > 0 {
					text = append(held, text...)
					begun[chunk.Stream] = held[:0]
				}
				if !line(chunk.Stream, text) {
					return
				}
				rest = rest[i+1:]
			}
			if len(rest) > 0 {
				begun[chunk.Stream] = append(begun[chunk.Stream], rest...)
			}
		}
		for _, stream := range slices.Sorted(maps.Keys(begun)) {
			if text := begun[stream]; len(text) > 0 && !line(stream, text) {
				return
			}
		}
	}
}

// LogChunks iterates over the same as [Command.Logs] and allocates nothing for
// it: the data of a chunk is valid until the loop asks for the next one. It is
// for a great deal of output that is looked at and not kept.
//
// A record of the log of more than a megabyte comes as several chunks. The
// platform names the stream of a record behind its data: until the end of such a
// record, its data is in a temporary file.
func (c *Command) LogChunks(ctx context.Context) iter.Seq2[LogChunk, error] {
	return func(yield func(LogChunk, error) bool) {
		client, err := c.client()
		if err != nil {
			yield(LogChunk{}, err)
			return
		}
		f := newFollower(ctx, client, c)
		defer f.Close()
		for {
			stream, data, err := f.next()
			if err == io.EOF {
				return
			}
			if err != nil {
				yield(LogChunk{}, err)
				return
			}
			if !yield(LogChunk{Stream: stream, Data: data}, nil) {
				return
			}
		}
	}
}

// Wait waits until the command has ended, and until its output has been written
// to the writers that [Sandbox.StartCommand] was given, if any. It returns at
// once when ctx ends; the command goes on. An error of a writer, of the stream
// that feeds it, or of the context of StartCommand, which ended the copying, is
// returned with the result of the command. Requests that fail are made again
// within the limits of [ReattachOptions].
func (c *Command) Wait(ctx context.Context) (*CommandResult, error) {
	client, err := c.client()
	if err != nil {
		return nil, err
	}
	data, err := client.waitCommand(ctx, c.session, c.ID())
	if err != nil {
		return nil, err
	}
	done := c.finish(*data)
	c.mu.Lock()
	p := c.pump
	c.mu.Unlock()
	return done, p.wait(ctx)
}

// WaitOutput waits until the output has been written to the writers that
// [Sandbox.StartCommand] was given, which is when the command or the context of
// that call has ended, and returns the error of a writer, of the stream or of
// that context: nil means that the writers have all of it. It makes no request,
// and returns at once when there are no writers.
func (c *Command) WaitOutput(ctx context.Context) error {
	if c == nil {
		return errZeroCommand
	}
	c.mu.Lock()
	p := c.pump
	c.mu.Unlock()
	return p.wait(ctx)
}

// finish records how the command ended.
func (c *Command) finish(data wire.Command) *CommandResult {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.data = data
	return finished(c)
}

// finished wraps a command whose end is known.
func finished(c *Command) *CommandResult {
	done := &CommandResult{Command: c}
	if c.data.ExitCode != nil {
		done.ExitCode = *c.data.ExitCode
	}
	if c.data.DurationMs != nil {
		done.Duration = time.Duration(*c.data.DurationMs)
	}
	return done
}

// String describes the command by its ID and program, its exit code and how long
// it ran.
func (c CommandResult) String() string {
	if c.Command == nil {
		return "command (none)"
	}
	text := fmt.Sprintf("%s: exit code %d", c.Command, c.ExitCode)
	if c.Duration > 0 {
		text += " after " + c.Duration.String()
	}
	return text
}

// Format writes String, whatever the verb: the insides are of no use in a log.
func (c CommandResult) Format(f fmt.State, verb rune) { redact.String(f, verb, c.String()) }

// LogValue describes the command and how it ended for log/slog.
func (c *CommandResult) LogValue() slog.Value {
	if c == nil || c.Command == nil {
		return slog.StringValue("command (none)")
	}
	return slog.GroupValue(append(c.Command.LogValue().Group(), slog.Int("exitCode", c.ExitCode), slog.Duration("duration", c.Duration))...)
}

// Wait returns c: the command has ended already.
func (c *CommandResult) Wait(context.Context) (*CommandResult, error) { return c, nil }

// Kill sends a signal to the command; [SIGTERM] asks it to end, [SIGKILL] ends
// it. It does not wait for that. For a command that had ended before, the error
// matches [os.ErrProcessDone], as that of [os.Process.Kill] does.
//
// A signal is delivered at most once, except for SIGKILL, SIGSTOP and SIGCONT, of
// which a second one changes nothing. When the answer is lost the command is
// looked at: that it has ended is no error then, and for one that runs on the
// error matches [ErrOutcomeUnknown].
func (c *Command) Kill(ctx context.Context, sig Signal) error {
	if sig <= 0 || sig > 64 {
		return invalid("sig", "%d is no signal of Linux", int(sig))
	}
	client, err := c.client()
	if err != nil {
		return err
	}
	op := api.SignalCommand
	switch sig {
	case SIGKILL, SIGSTOP, SIGCONT:
		op = api.KillCommand
	}
	req := &api.Request{Op: op, Path: []string{c.session, c.ID()}, Body: struct {
		Signal int `json:"signal"`
	}{int(sig)}}
	err = client.do(ctx, req, nil)
	switch {
	case err == nil || ctx.Err() != nil:
		return err
	case req.Uncertain && errors.Is(err, os.ErrProcessDone):
		return nil // the signal whose answer was lost may have done it
	case isUnknown(err):
		if data, lookErr := client.lookAtCommand(ctx, c.session, c.ID()); lookErr == nil && data.ExitCode != nil {
			c.finish(*data)
			return nil
		}
	}
	return err
}

// Stdout returns what the command wrote to its standard output, waiting for its
// end. Output that was not kept, because a writer was given or the command was
// detached, is fetched, once for all callers, and held in memory; for much
// output use [Command.Logs] or a writer.
func (c *Command) Stdout(ctx context.Context) (string, error) {
	return c.output(ctx, (*output).stdout)
}

// Stderr returns what the command wrote to its standard error, as
// [Command.Stdout] does.
func (c *Command) Stderr(ctx context.Context) (string, error) {
	return c.output(ctx, (*output).stderr)
}

// Output returns what the command wrote to its standard output and standard
// error, in the order in which it came, as [Command.Stdout] does.
func (c *Command) Output(ctx context.Context) (string, error) {
	return c.output(ctx, (*output).both)
}

func (c *Command) output(ctx context.Context, get func(*output) (string, bool)) (string, error) {
	if _, err := c.client(); err != nil && !c.hasOutput(get) {
		return "", err
	}
	for {
		c.mu.Lock()
		if c.kept != nil {
			if text, ok := get(c.kept); ok {
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
			// Whether the other call succeeded shows in kept.
		case <-ctx.Done():
			return "", api.ContextError(ctx)
		}
	}
	all := &output{}
	var err error
	for line, lineErr := range c.Logs(ctx) {
		if err = lineErr; err == nil {
			all.add(line.Stream, line.Data)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	close(c.fetching)
	c.fetching = nil
	if err != nil {
		return "", err
	}
	c.kept = all
	text, _ := get(all)
	return text, nil
}

func (c *Command) hasOutput(get func(*output) (string, bool)) bool {
	if c == nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.kept == nil {
		return false
	}
	_, ok := get(c.kept)
	return ok
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
	if c.kept != nil {
		stdout, ok1 := c.kept.stdout()
		stderr, ok2 := c.kept.stderr()
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
	c.c, c.session, c.data, c.kept = nil, s.SandboxID, s.Cmd, nil
	if s.Output != nil {
		c.kept = &output{}
		c.kept.add(Stdout, s.Output.Stdout)
		c.kept.add(Stderr, s.Output.Stderr)
	}
	return nil
}

// MarshalJSON writes the handle in the JavaScript SDK's serialized form, with
// the output if it is held in memory.
func (c *Command) MarshalJSON() ([]byte, error) { return json.Marshal(c.serialized()) }

// UnmarshalJSON revives a handle. It uses [DefaultClient] unless
// [Command.SetClient] says otherwise.
func (c *Command) UnmarshalJSON(data []byte) error {
	var s serializedCommand
	if err := json.Unmarshal(data, &s); err != nil {
		return err
	}
	return c.revive(&s)
}

// MarshalJSON writes the handle in the JavaScript SDK's serialized form, with
// the output if it is held in memory.
func (c CommandResult) MarshalJSON() ([]byte, error) {
	if c.Command == nil {
		return nil, fmt.Errorf("sandbox: %w: the CommandResult was not made by a Sandbox or from JSON", ErrInvalid)
	}
	s := c.serialized()
	s.ExitCode = &c.ExitCode
	s.Duration = s.Cmd.DurationMs
	return json.Marshal(s)
}

// UnmarshalJSON revives a handle, as that of [Command] does.
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
	if err := c.revive(&s); err != nil {
		return err
	}
	*c = *finished(c.Command)
	return nil
}

// commandReader reads the output of a command while it runs, in constant
// memory. It is one goroutine until Close, which ends the command.
type commandReader struct {
	*bufio.Reader
	cancel context.CancelFunc
	pipe   *io.PipeReader
	done   chan struct{}
}

// readCommand starts a command and returns when it has written something or has
// ended. Its failure is an *FSError, at once or at the end of what it wrote.
func readCommand(ctx context.Context, t target, name string, args []string) (*commandReader, error) {
	ctx, cancel := context.WithCancel(ctx)
	pr, pw := io.Pipe()
	r := &commandReader{
		Reader: bufio.NewReaderSize(pr, 64<<10),
		cancel: cancel, pipe: pr, done: make(chan struct{}),
	}
	go func() {
		defer close(r.done)
		name, args := coreutils.Carry(name, args)
		var stderr headBuffer
		done, err := t.RunCommand(ctx, name, args, &CommandOptions{Stdout: pw, Stderr: &stderr, KillOnCancel: true})
		if err == nil && done.ExitCode != 0 {
			err = reason(coreutils.NewError(name, done.ExitCode, string(stderr.buf)))
		}
		pw.CloseWithError(err) // nil is io.EOF
	}()
	if _, err := r.Peek(1); err != nil && err != io.EOF {
		r.Close()
		return nil, err
	}
	return r, nil
}

// Close ends the command and waits until nothing of it is left here.
func (r *commandReader) Close() error {
	r.cancel()
	r.pipe.CloseWithError(errors.New("sandbox: read after Close"))
	<-r.done
	return nil
}

// headBuffer keeps the beginning of what is written to it.
type headBuffer struct{ buf []byte }

func (b *headBuffer) Write(p []byte) (int, error) {
	const limit = 64 << 10
	b.buf = append(b.buf, p[:min(len(p), limit-len(b.buf))]...)
	return len(p), nil
}

// openEncoded reads a file through a command's output. That carries only UTF-8,
// so the content comes as base64.
func openEncoded(ctx context.Context, t target, path string) (io.ReadCloser, int64, error) {
	r, err := readCommand(ctx, t, "base64", coreutils.Operands(path))
	if err != nil {
		return nil, -1, err
	}
	return encodedBody{base64.NewDecoder(base64.StdEncoding, r), r}, -1, nil
}

// encodedBody is a file that comes through a command's output. Its end is that
// of the command, so what has come by then is all.
type encodedBody struct {
	io.Reader
	io.Closer
}
