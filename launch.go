package sandbox

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/go-vercel/sandbox/internal/api"
	"github.com/go-vercel/sandbox/internal/logstream"
	"github.com/go-vercel/sandbox/internal/wire"
)

const (
	// openGrace is how long a call with KillOnCancel waits for the response to
	// a start after its context has ended, so that a command that did start can
	// be killed.
	openGrace = 3 * time.Second
	// killGrace is how long such a call continues after its context in total.
	killGrace = 5 * time.Second
	// settleTime is how long after the loss of the response to its start a
	// command may appear. Until then, nothing can be concluded from its absence.
	settleTime = 5 * time.Second
)

// launch is one start of a command. The request is sent once. If the response
// is lost, the command's ID, which is part of the request, tells whether it
// started.
type launch struct {
	c       *Client
	session string
	body    *commandBody
	id      string // empty if the service chooses it
	chosen  bool   // by the caller
}

func (s *Session) newLaunch(name string, args []string, o *CommandOptions) (*launch, error) {
	body, err := newCommandBody(name, args, o)
	if err != nil {
		return nil, err
	}
	c, err := s.client()
	if err != nil {
		return nil, err
	}
	l := &launch{c: c, session: s.ID(), body: body, id: o.ID, chosen: o.ID != ""}
	if l.id == "" && !c.serverIDs.Load() {
		l.id = newCommandID()
	}
	return l, checkRoute(l.request(api.StartCommand))
}

// newCommandID returns a new ID of the form that the service accepts.
func newCommandID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return "c" + hex.EncodeToString(b[:])
}

// checkCommandID refuses an ID that no command can have.
func checkCommandID(id string) error {
	if id == "" {
		return nil
	}
	if len(id) > 64 {
		return invalid("ID", "has %d characters; at most 64 are allowed", len(id))
	}
	if i := strings.IndexFunc(id, func(r rune) bool {
		return !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || r == '_' || r == '-')
	}); i >= 0 {
		return invalid("ID", "%q has a character other than letters, digits, _ and -", id)
	}
	return nil
}

func (l *launch) request(op *api.Op) *api.Request {
	req := &api.Request{Op: op, Path: []string{l.session}, Body: l.body}
	if l.id != "" {
		req.Query = url.Values{"cmdId": {l.id}}
	}
	return req
}

// waited starts the command and returns the stream of its output and its first
// record. The request is made with open; the stream continues with ctx.
func (l *launch) waited(ctx, open context.Context) (*follower, *wire.Command, error) {
	var r *logstream.Reader
	cmd, err := l.start(open, func() (*wire.Command, error) {
		req := l.request(api.RunCommand)
		req.Accept = logstream.MediaType
		resp, err := l.c.api.Stream(open, req)
		if err != nil {
			return nil, err
		}
		r = logstream.Waited(ctx, l.c.logStream(l.session, ""), resp.Body)
		first, err := r.Start()
		if err != nil {
			r.Close()
			r = nil
		}
		return first, err
	})
	if err != nil {
		return nil, nil, l.public(err)
	}
	if r == nil { // it was found by its ID
		r = logstream.Adopt(ctx, l.c.logStream(l.session, cmd.ID), cmd)
	}
	return &follower{r, ctx, l.c, l.session, cmd.ID}, cmd, nil
}

// detached starts the command and returns it.
func (l *launch) detached(open context.Context) (*wire.Command, error) {
	cmd, err := l.start(open, func() (*wire.Command, error) {
		var response wire.CommandResponse
		req := l.request(api.StartCommand)
		if err := l.c.api.Do(open, req, &response); err != nil {
			return nil, err
		}
		if response.Command.ID == "" {
			return nil, api.BadResponse(req, errNoCommand)
		}
		return &response.Command, nil
	})
	if err != nil {
		return nil, l.public(err)
	}
	return cmd, nil
}

var errNoCommand = fmt.Errorf("the response does not name the command")

// start sends the request and, if the response does not tell whether it took
// effect, looks for the command.
func (l *launch) start(ctx context.Context, send func() (*wire.Command, error)) (*wire.Command, error) {
	cmd, err := send()
	if l.refusedID(err) {
		l.c.distrustIDs(ctx, "the service refused an ID for a command")
		l.id = ""
		cmd, err = send()
	}
	switch {
	case err == nil:
		if err := checkRoute(&api.Request{Op: api.GetCommand, Path: []string{l.session, cmd.ID}}); err != nil {
			return nil, err
		}
		if l.id != "" && cmd.ID != l.id {
			l.c.distrustIDs(ctx, "the service gave a command another ID than was asked for")
			l.id = ""
		}
		return cmd, nil
	case l.id != "" && (startUnknown(err) || l.twice(err)):
		patience := settleTime
		if !startUnknown(err) {
			patience = 0 // it is there, or the conflict is another one
		}
		found := logstream.Find(ctx, l.c.logStream(l.session, l.id), patience)
		switch {
		case found != nil && l.mayBe(found):
			return found, nil
		case found != nil:
			l.id = "" // it is not ours to kill
			err = fmt.Errorf("%w; a command of this ID runs another program", err)
		case ctx.Err() != nil && startUnknown(err):
			err = errors.Join(api.ContextError(ctx), err)
		}
	}
	return nil, err
}

// twice reports whether the service refused the request because of a command
// that has the generated ID already: a proxy has delivered the request before,
// and passes on the response to its retry.
func (l *launch) twice(err error) bool {
	f, ok := err.(*api.Failure)
	return ok && !l.chosen && f.Status == http.StatusConflict
}

// mayBe reports whether a command that has the launch's ID may be the one that
// it started. An ID of the caller's may belong to an earlier command, because of
// which the API has refused this one.
func (l *launch) mayBe(found *wire.Command) bool {
	return !l.chosen || found.Name == l.body.Command && slices.Equal(found.Args, l.body.Args)
}

// refusedID reports whether the service refused the request because of a
// generated ID.
func (l *launch) refusedID(err error) bool {
	f, ok := err.(*api.Failure)
	return ok && l.id != "" && !l.chosen && !f.Uncertain && f.Status == http.StatusBadRequest && strings.Contains(f.Message, "cmdId")
}

// distrustIDs stops generating IDs for commands, and logs that once.
func (c *Client) distrustIDs(ctx context.Context, why string) {
	if !c.serverIDs.Swap(true) && c.log != nil {
		c.log.LogAttrs(ctx, slog.LevelWarn, "sandbox: commands get their IDs from the service from now on; the outcome of a start whose response is lost stays unknown",
			slog.String("reason", why))
	}
}

// startUnknown reports whether a failed start may have taken effect.
func startUnknown(err error) bool {
	switch e := err.(type) {
	case *api.Failure:
		return e.OutcomeUnknown()
	case *api.AuthError:
		return false
	}
	return true // a stream that broke before it named the command
}

// public converts an error of a start to the one that users see.
func (l *launch) public(err error) error {
	switch e := err.(type) {
	case *logstream.Error:
		return l.c.streamError(e, l.session, "")
	case *api.Failure, *api.AuthError:
		return publicError(err)
	}
	return &RequestError{Operation: api.RunCommand.Name, SessionID: l.session, Err: err, unknown: startUnknown(err)}
}

// outlive returns a context that ends d after ctx does, with the error of ctx.
func outlive(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	long, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		timer := time.AfterFunc(d, func() { cancel(api.ContextError(ctx)) })
		context.AfterFunc(long, func() { timer.Stop() })
	})
	return outliving{long, ctx}, func() { stop(); cancel(nil) }
}

// outliving is a context that ends later than another, with that one's error.
type outliving struct {
	context.Context
	other context.Context
}

func (o outliving) Err() error {
	if err := o.other.Err(); err != nil && o.Context.Err() != nil {
		return err
	}
	return o.Context.Err()
}

// opening returns the context in which a command is started. With KillOnCancel
// the request outlives ctx until known is called, when the command is known.
func opening(ctx context.Context, o *CommandOptions) (open context.Context, known, release func()) {
	if !o.KillOnCancel {
		return ctx, func() {}, func() {}
	}
	open, closeIt := outlive(ctx, openGrace)
	var stop func() bool
	return open, func() { stop = context.AfterFunc(ctx, closeIt) }, func() {
		if stop != nil {
			stop()
		}
		closeIt()
	}
}

// killLate kills a command of a call with KillOnCancel whose context has ended
// or whose output can't be delivered. The caller learns of that; an error of
// the kill would not help it.
func (c *Command) killLate(ctx context.Context) {
	late, cancel := context.WithTimeout(context.WithoutCancel(ctx), killGrace-openGrace)
	defer cancel()
	_ = c.Kill(late)
}

// killUnknown kills the command of a start whose outcome is unknown, in case it
// runs.
func (l *launch) killUnknown(ctx context.Context, err error) {
	if l.id != "" && ctx.Err() != nil && isUnknown(err) {
		newCommand(l.c, l.session, wire.Command{ID: l.id}).killLate(ctx)
	}
}

// deliver writes the output to the writers, and returns the output that has
// none.
func (f *follower) deliver(o *CommandOptions) (*output, error) {
	kept := &output{noStdout: o.Stdout != nil, noStderr: o.Stderr != nil}
	for {
		stream, data, err := f.next()
		if err == io.EOF {
			// A stream that produced nothing is known, even though it has a
			// writer.
			stdout, stderr := f.Delivered()
			kept.noStdout = kept.noStdout && stdout
			kept.noStderr = kept.noStderr && stderr
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
			return nil, &StreamError{
				Code: codeWriteFailed, Message: "the " + string(stream) + " can't be written",
				SessionID: f.session, CommandID: f.id, Err: err,
			}
		}
	}
}

// codeWriteFailed is the code of a failed writer.
const codeWriteFailed = "write_failed"

// pump copies a command's output to its writers in the background.
type pump struct {
	done chan struct{}
	// Once it is done:
	end *wire.Command // how the command ended, if that is known
	err error
}

// startPump copies what f reads, and calls release when nothing is left to copy.
func startPump(ctx context.Context, f *follower, cmd *Command, o *CommandOptions, release func()) *pump {
	p := &pump{done: make(chan struct{})}
	writers := *o
	if writers.Stdout == nil {
		writers.Stdout = io.Discard
	}
	if writers.Stderr == nil {
		writers.Stderr = io.Discard
	}
	go func() {
		defer close(p.done)
		defer release()
		_, p.err = f.deliver(&writers)
		f.Close()
		p.end = f.End()
		if p.err != nil && o.KillOnCancel {
			cmd.killLate(ctx)
		}
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
