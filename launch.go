package sandbox

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"io"
	"strings"

	"github.com/go-vercel/sandbox/internal/api"
	"github.com/go-vercel/sandbox/internal/clean"
	"github.com/go-vercel/sandbox/internal/engine"
	"github.com/go-vercel/sandbox/internal/exact"
	"github.com/go-vercel/sandbox/internal/logstream"
	"github.com/go-vercel/sandbox/internal/wire"
	"github.com/go-vercel/sandbox/observe"
)

// begin starts a command: RunCommand, StartCommand and Cmd are layers over it.
// The start is given up when ctx ends. If followed is set, the response is the
// output of the command, which the follower reads until live ends; it is nil
// otherwise.
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
		Honored: c.honoredIDs.Load(), Distrust: c.distrustIDs, Doubt: c.doubtIDs,
		Check: func(id string) error {
			return checkRoute(&api.Request{Op: api.GetCommand, Path: []string{session, id}})
		},
	}
	if o.ID == "" && !c.serverIDs.Load() {
		start.Stream.ID = newCommandID()
	}
	token := ""
	// Who has chosen an ID means to find the command again, perhaps to end it.
	if o.KillOnCancel || o.tree || o.Binary || o.ID != "" {
		token = treeToken(session, start.Stream.ID)
		body.Mark(token, o.envAt)
	}
	own, _, _ := clean.Of(name, args)
	if o.input != "" {
		body.Command, body.Args = "/bin/sh", append([]string{"-c", withInput, "sh", o.input, body.Command}, body.Args...)
	}
	if o.Binary {
		body.Command, body.Args = exact.Wrap(body.Command, body.Args)
	}
	handle := func(data wire.Command) *Command {
		cmd := newCommand(c, session, data)
		cmd.token = token
		return cmd
	}
	var left error // of the command whose start is given up
	if o.KillOnCancel {
		start.Kill = func(ctx context.Context, id string) {
			left = handle(wire.Command{ID: id, Name: name, Args: args}).killLate(ctx, engine.KillGrace-engine.OpenGrace, nil)
		}
	}
	if err := checkRoute(start.Request(api.StartCommand)); err != nil {
		return nil, nil, err
	}
	data, r, release, err := start.Begin(ctx, live)
	if err != nil {
		return nil, nil, also(noShell(c.startError(session, err), name), left)
	}
	if generated := o.ID == "" && start.Stream.ID != ""; generated && data.ID == start.Stream.ID {
		c.honoredIDs.Store(true)
	}
	cmd := handle(*data)
	if r == nil {
		release()
		return cmd, nil, nil
	}
	f := &follower{Reader: r, ctx: live, c: c, session: session, id: data.ID, release: release}
	f.expect(o.Binary, own != nil)
	return cmd, f, nil
}

// withInput opens the file, removes it and becomes the command, so that the
// file is gone when the command begins. Then it is for whoever the command becomes,
// who may open /dev/stdin. The command gets the environment that
// the shell was given, which shells change: they drop what is no identifier, and
// set variables of their own. PATH may be the command's own.
const withInput = `exec <"$1" || exit 126
old=$PATH PATH=/usr/bin:/bin:$PATH
rm -f -- "$1" && chmod 644 /dev/stdin 2>/dev/null; shift
env=$(LC_ALL=C sed -z "/=/!d; s/'/'\\\\''/g; s/^/'/; s/$/'/" "/proc/$$/environ" 2>/dev/null | tr '\0' ' ')
[ -n "$env" ] || { PATH=$old; exec "$@"; }
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
	b := &engine.Body{Command: name, Args: args, Cwd: o.Cwd, Env: o.Env, Sudo: o.Sudo, Timeout: wire.Duration(o.Timeout), Stdin: o.attach}
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

// distrustIDs stops generating IDs for commands, and tells that once.
func (c *Client) distrustIDs(ctx context.Context, why string) {
	if !c.serverIDs.Swap(true) {
		c.tell(ctx, nil, observe.Event{Kind: observe.CommandIDs, Cause: why}, nil)
	}
}

// doubtIDs stops generating IDs the second time: once may be chance.
func (c *Client) doubtIDs(ctx context.Context, why string) {
	if c.doubtedIDs.Swap(true) {
		c.distrustIDs(ctx, why)
	}
}

// noShell adds to the error of a program that isn't there what is often the
// reason.
func noShell(err error, name string) error {
	if e, ok := err.(*APIError); ok && e.judged() == api.NoProgram && strings.ContainsAny(name, " |&;<>$*") {
		e.hint = `the name is that of a program, and no shell reads it: run "sh" with the arguments "-c" and the line`
	}
	return err
}

// startError converts an error of a start to the one that users see.
func (c *Client) startError(session string, err error) error {
	unknown := engine.Unknown(err)
	switch e := err.(type) {
	case *logstream.Error:
		return c.streamError(e, session, "")
	case *engine.TwiceError:
		err = publicError(e.Err)
	case *api.Failure, *api.AuthError:
		return publicError(err)
	}
	return &RequestError{operation: api.RunCommand.Name, session: session, Err: err, unknown: unknown}
}

// deliver writes the output to the writers, and returns the output that has
// none.
func (f *follower) deliver(o *CommandOptions) (*output, error) {
	kept := &output{noStdout: o.Stdout != nil, noStderr: o.Stderr != nil}
	err := f.each(func(stream string, data []byte) error {
		w := o.Stdout
		if stream == Stderr {
			w = o.Stderr
		}
		if w == nil {
			kept.addBytes(stream, data)
			return nil
		}
		if err := writeAll(w, data); err != nil {
			return &StreamError{
				Code: codeWriteFailed, Message: "the " + string(stream) + " can't be written",
				SessionID: f.session, CommandID: f.id, Err: err,
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	// A stream that produced nothing is known, even though it has a writer.
	stdout, stderr := f.Delivered()
	kept.noStdout = kept.noStdout && stdout
	kept.noStderr = kept.noStderr && stderr
	return kept, nil
}

func writeAll(w io.Writer, data []byte) error {
	n, err := w.Write(data)
	if err == nil && n < len(data) {
		err = io.ErrShortWrite
	}
	return err
}

// codeWriteFailed is the code of a failed writer.
const codeWriteFailed = "write_failed"

// pump copies a command's output to its writers in the background.
type pump struct {
	done  chan struct{}
	event api.Span // for observers
	// Once it is done:
	end *wire.Command // how the command ended, if that is known
	err error
}

// startPump copies what f reads, until the end of the event.
func startPump(ctx context.Context, f *follower, cmd *Command, o *CommandOptions, e api.Span) *pump {
	p := &pump{done: make(chan struct{}), event: e}
	writers := *o
	if writers.Stdout == nil {
		writers.Stdout = io.Discard
	}
	if writers.Stderr == nil {
		writers.Stderr = io.Discard
	}
	within := engine.Patience(ctx)
	go func() {
		defer close(p.done)
		_, p.err = f.deliver(&writers)
		f.Close()
		p.end = f.End()
		if p.err != nil && o.KillOnCancel {
			p.err = cmd.killLate(ctx, within, p.err)
		}
		p.event.Received = f.Bytes()
		exited(&p.event, p.end)
		endEvent(&p.event, p.err)
	}()
	return p
}

// over waits for the copying to end and reports whether it has. That it has
// counts for more than that ctx has ended, too.
func (p *pump) over(ctx context.Context) bool {
	select {
	case <-p.done:
		return true
	case <-ctx.Done():
	}
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// wait waits for the copying to end. A nil pump has nothing to copy.
func (p *pump) wait(ctx context.Context) error {
	switch {
	case p == nil:
		return nil
	case p.over(ctx):
		return p.err
	}
	return api.ContextError(ctx)
}

// waitEnd waits for the copying to end, and returns how the command ended; nil
// if that is not known.
func (p *pump) waitEnd(ctx context.Context) *wire.Command {
	if p == nil || !p.over(ctx) {
		return nil
	}
	return p.end
}
