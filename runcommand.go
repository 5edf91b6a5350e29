package sandbox

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/go-vercel/sandbox/internal/api"
	"github.com/go-vercel/sandbox/internal/clean"
	"github.com/go-vercel/sandbox/internal/engine"
	"github.com/go-vercel/sandbox/internal/logstream"
	"github.com/go-vercel/sandbox/internal/redact"
	"github.com/go-vercel/sandbox/internal/wire"
	"github.com/go-vercel/sandbox/observe"
)

// CommandOptions are the options of a command. The zero value runs it as the
// sandbox's user in the session's working directory.
type CommandOptions struct {
	// Cwd is the working directory; empty means the session's.
	Cwd string
	// Env is added to the sandbox's environment. Values are never shown in
	// errors or logs.
	Env Env
	// Sudo runs the command as root.
	Sudo bool
	// Timeout is how long the command may run, from 100 ms to 5 hours. It is then killed:
	// it ends with exit code 137, and [CommandResult.TimedOut] is set. Zero means no limit
	// except the session's.
	Timeout time.Duration
	// Stdout and Stderr receive the output as it arrives. At most one goroutine
	// at a time calls Write; if both are the same writer, it receives the
	// output in order. A slow writer slows the command down. Output that goes
	// to a writer is not kept in memory; [Command.Stdout] and [Command.Stderr]
	// fetch it again.
	Stdout, Stderr io.Writer
	// KillOnCancel kills the command and its children, as [Command.SignalTree] does with
	// [SIGKILL], if the context of RunCommand or StartCommand ends while it runs, or if a
	// writer fails. Without KillOnCancel only the call ends, and the command continues. If
	// the children can't be reached, the error matches [ErrChildren]; if it is unknown
	// whether the command was killed, it matches [ErrOutcomeUnknown]. With KillOnCancel the
	// call returns at most five seconds after the context has ended, even if the API does not
	// respond to the start or to the kill.
	KillOnCancel bool
	// ID identifies the command within its session: at most 64 letters, digits,
	// underscores and dashes, not used before in this session. A program that
	// stores it first can find the command again with [Session.GetCommand],
	// even if the program was killed before it learned that the command had
	// started. If the response to a start is lost, the call adopts the command that has
	// this ID, program and arguments. If empty, an ID is generated; see
	// [ClientOptions.ServerCommandIDs].
	ID string
	// Binary delivers every byte of the output. Otherwise bytes that are not UTF-8 arrive
	// as U+FFFD, because the API carries text. With Binary, a bash in the sandbox runs the
	// program and encodes its output. It needs dd and base64. This changes:
	//
	//   - a program that is missing or can't be executed is no error of the call: the
	//     command ends with 127 or 126 and bash's message;
	//   - Signal is [Command.SignalTree], except for SIGSTOP and SIGCONT, which reach the
	//     bash alone;
	//   - the program's environment also has PWD and SHLVL, and not the values that you give to
	//     bash's own variables, such as IFS, OPTIND, PS4, SHELLOPTS or RANDOM;
	//   - the order between the two outputs may change;
	//   - the command ends when all processes that hold its output have ended, not
	//     only the first;
	//   - the output is a third longer in transit, and other programs that read the
	//     command's log see it encoded.
	Binary bool

	// attach is AttachStdin of StartOptions.
	attach bool
	// markTree, like KillOnCancel, marks the process with the variable that SignalTree looks
	// for. If envAt is not zero, the variable is also inserted at that index of the
	// arguments, as an argument of the program env.
	markTree bool
	envAt    int
	// input is the file that becomes the command's standard input.
	input string
	// callerEnv holds the variables that the caller has set, whose values are secret. Nil
	// means that Env holds exactly those. It is set if the client added variables to Env, or
	// passes them as arguments.
	callerEnv Env
}

// Format prints the options without values that may be secret, for every verb.
func (o CommandOptions) Format(f fmt.State, verb rune) { redact.Struct(f, verb, o) }

// StartOptions are the options of StartCommand: those of [CommandOptions], and
// AttachStdin.
type StartOptions struct {
	// Cwd is the working directory; empty means the session's.
	Cwd string
	// Env is added to the sandbox's environment. Values are never shown in
	// errors or logs.
	Env Env
	// Sudo runs the command as root.
	Sudo bool
	// Timeout is how long the command may run; see [CommandOptions].
	Timeout time.Duration
	// Stdout and Stderr receive the output as it arrives, until the command or the
	// context of StartCommand has ended; see [CommandOptions].
	Stdout, Stderr io.Writer
	// KillOnCancel kills the command and its children if the context of
	// StartCommand ends while it runs, or if a writer fails; see [CommandOptions].
	KillOnCancel bool
	// ID identifies the command within its session; see [CommandOptions].
	ID string
	// Binary delivers the output byte by byte; see [CommandOptions].
	Binary bool
	// AttachStdin keeps the command's standard input open for [Command.Stdin].
	// Otherwise the input is empty. A sandbox or service that does not support
	// this refuses the command, with an error that matches [errors.ErrUnsupported].
	AttachStdin bool
}

// Format prints the options without values that may be secret, for every verb.
func (o StartOptions) Format(f fmt.State, verb rune) { redact.Struct(f, verb, o) }

// command returns the options in the common form of all commands. It marks the process
// for SignalTree.
func (o *StartOptions) command() *CommandOptions {
	o = cmp.Or(o, &StartOptions{})
	return &CommandOptions{
		Cwd: o.Cwd, Env: o.Env, Sudo: o.Sudo, Timeout: o.Timeout, Stdout: o.Stdout, Stderr: o.Stderr, KillOnCancel: o.KillOnCancel,
		ID: o.ID, Binary: o.Binary, attach: o.AttachStdin, markTree: true,
	}
}

// RunCommand runs a program with arguments and waits for it to end, streaming
// its output as it arrives. A non-zero exit code is a result, not an error. A
// nil opts means the defaults. It makes one request.
//
// The request is sent once. If its response is lost, RunCommand looks the command up by
// its ID for five seconds, or for 45 seconds while it can't reach the API. If it still
// does not know whether the command started, the error matches [ErrOutcomeUnknown]. If the
// output stream breaks, it is reopened: each byte is delivered once, and the exit code is
// the process's own. If the stream can't be reopened, or a writer fails, the error is a
// [*StreamError] with the command's ID.
// Output that is not UTF-8 arrives as U+FFFD, unless Binary is set.
//
// If ctx ends, RunCommand returns as soon as a pending Write has returned, and
// the command continues unless KillOnCancel is set.
func (s *Session) RunCommand(ctx context.Context, name string, args []string, opts *CommandOptions) (*CommandResult, error) {
	c, err := enter(ctx, s)
	if err != nil {
		return nil, err
	}
	ctx, e := c.beginCommand(ctx, s, name, args)
	done, err := s.runCommand(ctx, name, args, opts)
	done.finishEvent(&e, err)
	return done.result, err
}

// commandRun is the result of one run.
type commandRun struct {
	result      *CommandResult // nil after an error
	session, id string
	received    int64
	cmd         *Command // the started command; its pump, if any, ends the event
}

// fillEvent adds the result to the command's event.
func (r *commandRun) fillEvent(e *api.Span) {
	e.Session, e.Command, e.Received, e.Outcome = cmp.Or(r.session, e.Session), r.id, r.received, observe.Started
	if r.result != nil {
		setExit(e, &r.result.Command.data)
	}
}

// finishEvent adds the result to the command's event, and ends the event unless the
// output is still being copied.
func (r *commandRun) finishEvent(e *api.Span, err error) {
	if r.fillEvent(e); r.cmd == nil || r.cmd.pump == nil {
		endEvent(e, err)
	}
}

// setExit sets how a command has ended; nil means unknown.
func setExit(e *api.Span, end *wire.Command) {
	if end != nil && end.ExitCode != nil {
		e.Outcome, e.ExitCode = observe.OK, *end.ExitCode
	}
}

// beginCommand reports the start of a command.
func (c *Client) beginCommand(ctx context.Context, on named, name string, args []string) (context.Context, api.Span) {
	_, name, args = clean.Of(name, args)
	return c.beginEvent(ctx, on, observe.Event{Kind: observe.Command, Program: name, Args: args})
}

func (s *Session) runCommand(ctx context.Context, name string, args []string, opts *CommandOptions) (r commandRun, err error) {
	r.session = s.ID()
	o := orZero(opts)
	cmd, f, err := s.begin(ctx, ctx, name, args, &o, true)
	if err != nil {
		return r, err
	}
	defer f.Close()
	within := engine.Patience(ctx)
	kept, err := f.deliver(&o)
	r.id, r.received = f.id, f.Bytes()
	if err != nil {
		if e, ok := err.(*StreamError); o.KillOnCancel && (ctx.Err() != nil || ok && e.Code == codeWriteFailed) {
			err = cmd.killAfterCancel(ctx, within, err)
		}
		return r, err
	}
	if end := f.End(); end != nil {
		cmd.data = *end
	}
	cmd.cached = kept
	r.result = finished(cmd)
	return r, nil
}

// StartCommand starts a program with arguments but does not wait for it to end.
// A nil opts means the defaults.
//
// If opts has writers, the output is copied to them in the background until the
// command or ctx has ended; [Command.Wait] waits for that. It costs one request
// in all, Wait included: the response to the start is the output, and its last
// record reports how the command ended. With AttachStdin, the log is read
// instead, as by [Command.Logs]. Without writers, no output is read. The request
// is sent once; if its response is lost, the command is looked up as by
// RunCommand.
func (s *Session) StartCommand(ctx context.Context, name string, args []string, opts *StartOptions) (*Command, error) {
	c, err := enter(ctx, s)
	if err != nil {
		return nil, err
	}
	ctx, e := c.beginCommand(ctx, s, name, args)
	begun, err := s.startCommand(ctx, name, args, *opts.command(), e)
	begun.finishEvent(&e, err)
	return begun.cmd, err
}

// startCommand starts a command. The goroutine that copies its output ends the event.
func (s *Session) startCommand(ctx context.Context, name string, args []string, o CommandOptions, e api.Span) (r commandRun, err error) {
	r.session = s.ID()
	copied := o.Stdout != nil || o.Stderr != nil
	// The service may not support input for a command whose start waits for its output.
	cmd, f, err := s.begin(ctx, ctx, name, args, &o, copied && !o.attach)
	if err != nil {
		return r, err
	}
	r.id = cmd.ID()
	cmd.stdinKnown, cmd.stdinNone = o.attach, !o.attach
	if o.KillOnCancel && ctx.Err() != nil {
		f.Close()
		why := &RequestError{operation: api.StartCommand.Name, session: s.ID(), Err: api.ContextError(ctx)}
		return r, cmd.killAfterCancel(ctx, engine.Patience(ctx), why)
	}
	r.cmd = cmd
	if copied {
		if f == nil {
			f = newFollower(ctx, cmd.c, cmd)
		}
		r.fillEvent(&e)
		cmd.pump = startPump(ctx, f, cmd, &o, e)
		return r, nil
	}
	if o.KillOnCancel {
		cmd.mu.Lock()
		defer cmd.mu.Unlock()
		cmd.release = context.AfterFunc(ctx, func() {
			if _, over := cmd.ExitStatus(); !over {
				_ = cmd.killAfterCancel(ctx, engine.KillGrace, nil)
			}
		})
	}
	return r, nil
}

// begin starts a command for RunCommand, StartCommand and Cmd. It gives up when ctx ends.
// If followed is set, the response is the output of the command, and the follower reads it
// until live ends. Otherwise the follower is nil.
func (s *Session) begin(ctx, live context.Context, name string, args []string, o *CommandOptions, followed bool) (*Command, *follower, error) {
	c, err := enter(ctx, s)
	if err != nil {
		return nil, nil, err
	}
	body, err := newCommandBody(name, args, o)
	if err != nil {
		return nil, nil, err
	}
	session := s.ID()
	body.Wait, body.Logs = followed, followed
	start := &engine.Start{
		Stream: c.logStream(session, o.ID), Chosen: o.ID != "", Body: body,
		Honored: c.honoredIDs.Load(), Distrust: c.stopGeneratingIDs, Doubt: c.doubtGeneratedIDs,
		Check: func(id string) error {
			return checkRoute(&api.Request{Op: api.GetCommand, Path: []string{session, id}})
		},
	}
	if o.ID == "" && !c.serverIDs.Load() {
		start.Stream.ID = newCommandID()
	}
	token := ""
	// A caller that chooses an ID wants to find the command again, perhaps to end it.
	if o.KillOnCancel || o.markTree || o.Binary || o.ID != "" {
		token = treeToken(session, start.Stream.ID)
		body.Mark(token, o.envAt)
	}
	own, _, _ := clean.Of(name, args)
	if o.input != "" {
		body.Command, body.Args = "/bin/sh", append([]string{"-c", inputScript, "sh", o.input, body.Command}, body.Args...)
	}
	if o.Binary {
		body.Command, body.Args = wrapBinary(body.Command, body.Args)
	}
	handle := func(data wire.Command) *Command {
		cmd := newCommand(c, session, data)
		cmd.token, cmd.limit = token, o.Timeout
		return cmd
	}
	var killErr error // of killing a command whose start was given up
	if o.KillOnCancel {
		start.Kill = func(ctx context.Context, id string) {
			killErr = handle(wire.Command{ID: id, Name: name, Args: args}).killAfterCancel(ctx, engine.KillGrace-engine.OpenGrace, nil)
		}
	}
	if err := checkRoute(start.Request(api.StartCommand)); err != nil {
		return nil, nil, err
	}
	data, r, release, err := start.Begin(ctx, live)
	if err != nil {
		return nil, nil, joinErrors(withProgramHint(c.startError(session, err, body), name), killErr)
	}
	if generated := o.ID == "" && start.Stream.ID != ""; generated && data.ID == start.Stream.ID {
		c.honoredIDs.Store(true)
	}
	cmd := handle(*data)
	if r == nil {
		release()
		return cmd, nil, nil
	}
	f := &follower{Reader: r, ctx: live, c: c, session: session, id: data.ID, release: release, request: body}
	f.setKind(o.Binary, own != nil)
	return cmd, f, nil
}

// inputScript opens the input file, removes it and runs the command in place of the shell,
// so that the file is gone when the command begins. It makes the open file readable for
// other users, because the command may run as one of them and open /dev/stdin. A shell
// drops variables whose names are not identifiers, and adds its own. The command therefore
// gets its environment from /proc. LD_PRELOAD and LD_DEBUG are unset for the helper
// programs, so that the loader prints nothing for them.
const inputScript = `exec <"$1" || exit 126
old=$PATH PATH=/usr/bin:/bin:$PATH
(unset LD_PRELOAD LD_DEBUG; rm -f -- "$1" && chmod 644 /dev/stdin 2>/dev/null); shift
env=$(unset LD_PRELOAD LD_DEBUG; LC_ALL=C sed -z "/=/!d; s/'/'\\\\''/g; s/^/'/; s/$/'/" "/proc/$$/environ" 2>/dev/null | tr '\0' ' ')
[ -n "$env" ] || { PATH=$old; exec "$@"; }
unset LD_PRELOAD LD_DEBUG
case $1 in *=*) set -- "$(command -v nice)" -n 0 "$@";; esac
eval "exec env -i -- $env \"\$@\""`

// newCommandID returns a new ID of the form that the service accepts.
func newCommandID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return "c" + hex.EncodeToString(b[:])
}

var noEnv = map[string]string{}

// newCommandBody checks a command and returns the request that starts it.
func newCommandBody(name string, args []string, o *CommandOptions) (*engine.Body, error) {
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
	if err := cmp.Or(
		checkText("Cwd", o.Cwd), checkEnv("Env", o.Env), checkRange("Timeout", o.Timeout, wire.MinCommandTimeout, wire.MaxCommandTimeout), checkCommandID(o.ID),
	); err != nil {
		return nil, err
	}
	b := &engine.Body{Command: name, Args: args, Cwd: o.Cwd, Env: o.Env, Sudo: o.Sudo, Timeout: wire.Duration(o.Timeout), Stdin: o.attach, Secret: o.Env}
	if o.callerEnv != nil {
		b.Secret = o.callerEnv
	}
	if b.Args == nil {
		b.Args = []string{}
	}
	if b.Env == nil {
		b.Env = noEnv
	}
	return b, nil
}

// checkCommandID refuses an ID that no command can have.
func checkCommandID(id string) error {
	if id == "" {
		return nil
	}
	switch {
	case len(id) > wire.MaxCommandID:
		return invalid("ID", "has %d characters; at most %d are allowed", len(id), wire.MaxCommandID)
	case !wire.PlainName(id, wire.MaxCommandID):
		return invalid("ID", "%q has a character other than letters, digits, _ and -", id)
	}
	return nil
}

// stopGeneratingIDs lets the service choose the IDs of commands, and logs that once.
func (c *Client) stopGeneratingIDs(ctx context.Context, why string) {
	if !c.serverIDs.Swap(true) {
		c.api.Log(ctx, slog.LevelWarn, "sandbox: commands get their IDs from the service from now on", slog.String("cause", why))
	}
}

// doubtGeneratedIDs stops generating IDs at its second call: a single doubt may be an
// accident.
func (c *Client) doubtGeneratedIDs(ctx context.Context, why string) {
	if c.doubtedIDs.Swap(true) {
		c.stopGeneratingIDs(ctx, why)
	}
}

// noInterpreter explains why an existing file is reported as missing.
const noInterpreter = "its first line (#!) names a program that isn't, as with Windows line endings (CRLF)"

// withProgramHint adds the usual reason to the error of a missing program.
func withProgramHint(err error, name string) error {
	e, ok := err.(*APIError)
	switch {
	case !ok || e.errorKind() != api.NoProgram:
	case strings.ContainsAny(name, " |&;<>$*"):
		e.hint = `the name is that of a program, and no shell reads it: run "sh" with the arguments "-c" and the line`
	case strings.Contains(name, "/"):
		e.hint = "if the file is there, " + noInterpreter
	}
	return err
}

// startError converts an error of a start to the one that users see.
func (c *Client) startError(session string, err error, body *engine.Body) error {
	unknown := engine.Unknown(err)
	switch e := err.(type) {
	case *logstream.Error:
		return c.streamError(e, session, "", body)
	case *engine.TwiceError:
		err = publicError(e.Err)
	case *api.Failure, *api.AuthError:
		return publicError(err)
	}
	return &RequestError{operation: api.RunCommand.Name, session: session, Err: err, unknown: unknown}
}

// GetCommand returns the command of this session with the given ID. It makes a second
// request to find out whether the command has ended. For a running command, that request
// takes a quarter of a second, or twice the time of the first request if that is longer.
// If the command does not exist, the error matches [ErrNotFound].
func (s *Session) GetCommand(ctx context.Context, id string) (*Command, error) {
	c, err := enter(ctx, s)
	if err != nil {
		return nil, err
	}
	if err := checkID(id); err != nil {
		return nil, err
	}
	data, err := c.lookAtCommand(ctx, s.ID(), id)
	if err != nil {
		return nil, err
	}
	return newCommand(c, s.ID(), *data), nil
}

// ListCommands returns the session's commands, running and ended, with one
// request. The service reports the end of a command only to requests that wait
// for it: ExitStatus may not yet know about a command that has ended. Use
// [Session.GetCommand] or [Command.Wait] to find out.
func (s *Session) ListCommands(ctx context.Context) ([]*Command, error) {
	c, err := enter(ctx, s)
	if err != nil {
		return nil, err
	}
	var resp wire.CommandsResponse
	if err := s.do(ctx, api.ListCommands, nil, &resp); err != nil {
		return nil, err
	}
	cmds := make([]*Command, len(resp.Commands))
	for i, data := range resp.Commands {
		cmds[i] = newCommand(c, s.ID(), data)
	}
	return cmds, nil
}
