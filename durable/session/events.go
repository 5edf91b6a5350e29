package session

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io/fs"
	"iter"
	"time"
	"unicode/utf8"

	"go.temporal.io/api/serviceerror"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/durable"
)

// Events iterates over a session's events from a cursor on, and goes on with new
// ones until the session has ended or ctx has. The output of commands is among
// them, live while they run. Each event, and each byte of output, comes once; a
// loop that ended is continued without a gap at the Cursor of its last event, in
// this process or another. It needs a worker to be up.
func (c *Client) Events(ctx context.Context, id string, from Cursor) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		v := &viewer{c: c, ctx: ctx, id: id, at: from, yield: yield}
		if err := v.follow(); err != nil && !errors.Is(err, errLeft) {
			yield(Event{}, err)
		}
	}
}

var (
	// errLeft says that the loop has ended.
	errLeft = errors.New("the viewer has left")
	// errPending says that what comes next is to be had later.
	errPending = errors.New("it is not there yet")
)

// viewer is one reader of a session's events.
type viewer struct {
	c     *Client
	ctx   context.Context
	id    string
	at    Cursor
	yield func(Event, error) bool
}

func (v *viewer) give(e Event) error {
	e.Cursor = v.at
	if !v.yield(e, nil) {
		return errLeft
	}
	return nil
}

func (v *viewer) follow() error {
	next, leave := v.c.watch(v.id)
	defer leave()
	for {
		changed := next()
		events, closed, err := v.page()
		if err == nil {
			err = v.events(events)
		}
		switch {
		case err == nil && closed:
			return nil
		case err == nil && len(events) > 0:
			continue
		case err != nil && !errors.Is(err, errPending):
			return err
		}
		var again <-chan time.Time
		if err != nil { // it may come without a change that shows
			again = time.After(time.Second)
		}
		select {
		case <-changed:
		case <-again:
		case <-v.ctx.Done():
			return v.ctx.Err()
		}
	}
}

// events gives events, with the output of commands.
func (v *viewer) events(events []stored) error {
	for i, e := range events {
		// The end of a command is among what is known already, or to come.
		if err := v.event(e, ended(events[i+1:], e.Event.ID)); err != nil {
			return err
		}
	}
	return nil
}

// page returns events from the cursor on, and whether there will be no more
// behind them.
func (v *viewer) page() ([]stored, bool, error) {
	var p page
	err := v.c.query(v.ctx, v.id, &p, queryEvents, v.at.Seq)
	if _, ok := errors.AsType[*serviceerror.QueryFailed](err); ok {
		return nil, false, errPending // a run that begins, or a worker that was too busy
	}
	if err != nil || v.at.Seq >= p.Base {
		return p.Events, p.Closed, err
	}
	events, err := v.c.archive.get(v.ctx, v.id, p.Stored, v.at.Seq)
	if err != nil || len(events) > 0 {
		return events, false, err
	}
	v.at = Cursor{Seq: p.Base}
	if err := v.give(Event{Type: TypeTruncated, From: p.Base}); err != nil {
		return nil, false, err
	}
	return v.page()
}

// ended returns the end of a command among events.
func ended(events []stored, id string) *Event {
	for _, e := range events {
		if e.Event.Type == TypeCommandEnd && e.Event.ID == id {
			return &e.Event
		}
	}
	return nil
}

// event gives one event, unless the cursor is behind it, and the output that
// follows it.
func (v *viewer) event(e stored, end *Event) error {
	seq := e.Event.Seq
	if e.Event.Type != TypeCommandStart {
		v.at = Cursor{Seq: seq + 1}
		return v.give(e.Event)
	}
	if v.at.Seq != seq || v.at.Byte == 0 {
		v.at = Cursor{seq, 1}
		if err := v.give(e.Event); err != nil {
			return err
		}
	}
	err := v.output(e, end)
	if err != nil {
		return err
	}
	v.at = Cursor{Seq: seq + 1}
	return nil
}

// output gives a command's output from the cursor on: from the store when it is
// there, from the platform otherwise. An error is of something that may be there
// at the next try; what is lost for good is an event.
func (v *viewer) output(e stored, end *Event) error {
	o := &outputs{v: v, id: e.Event.ID, seq: e.Event.Seq, skip: v.at.Byte - 1}
	err := o.stored(e.Event.Output)
	if errors.Is(err, fs.ErrNotExist) && (end == nil || !end.Archived) {
		err = o.live(e.Handle)
	}
	if gone(err) || errors.Is(err, fs.ErrNotExist) {
		// The machine has ended. What was read of it is in the store once the
		// command's end is known, if anything is.
		running := false
		if end == nil {
			if running, err = v.runs(e.Event.ID); err != nil {
				return err
			}
		}
		if err = o.stored(e.Event.Output); running && errors.Is(err, fs.ErrNotExist) {
			return errPending
		}
	}
	if _, broken := errors.AsType[*json.SyntaxError](err); err != nil && !broken && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err == nil {
		return nil
	}
	v.at = Cursor{Seq: e.Event.Seq + 1}
	return v.give(Event{Type: TypeOutputLost, ID: e.Event.ID, Error: err.Error()})
}

// runs reports whether a command has not ended. It may report so for a moment
// after its end; a change follows.
func (v *viewer) runs(command string) (bool, error) {
	s, err := v.c.State(v.ctx, v.id)
	if err != nil {
		return false, err
	}
	return s.Running == command, nil
}

func gone(err error) bool {
	stream, ok := errors.AsType[*sandbox.StreamError](err)
	return errors.Is(err, sandbox.ErrStopped) || errors.Is(err, sandbox.ErrNotFound) || ok && stream.Code == "sandbox_stream_closed"
}

// outputs turns pieces of a command's output, from wherever they come, into
// events. Their borders differ from source to source; their bytes don't.
type outputs struct {
	v    *viewer
	id   string
	seq  int
	pos  int64 // behind the pieces so far
	skip int64 // bytes that the viewer has
}

func (o *outputs) stored(key string) error {
	o.pos = 0
	for rec, err := range durable.ReadOutput(o.v.ctx, o.v.c.opts.Output, key) {
		if err != nil {
			return err
		}
		if err := o.piece(rec.Stream, rec.Data); err != nil {
			return err
		}
	}
	return nil
}

func (o *outputs) live(handle []byte) error {
	if o.v.c.opts.Sandbox == nil || len(handle) == 0 { // nobody knows its ID
		return fs.ErrNotExist
	}
	var cmd sandbox.Command
	if err := json.Unmarshal(handle, &cmd); err != nil {
		return err
	}
	o.v.c.opts.Sandbox.Bind(&cmd)
	o.pos = 0
	for chunk, err := range cmd.LogChunks(o.v.ctx) {
		if err != nil {
			return err
		}
		if err := o.piece(string(chunk.Stream), chunk.Data); err != nil {
			return err
		}
	}
	return nil
}

// piece gives what the viewer does not have of a piece.
func (o *outputs) piece(stream string, data []byte) error {
	start := o.pos
	o.pos += int64(len(data))
	if o.pos <= o.skip {
		return nil
	}
	if start < o.skip {
		data = data[o.skip-start:]
	}
	o.skip = o.pos
	if len(data) == 0 {
		return nil
	}
	o.v.at = Cursor{o.seq, o.pos + 1}
	e := Event{Type: TypeCommandOutput, Seq: o.seq, ID: o.id, Stream: stream, Data: string(data)}
	if !utf8.Valid(data) {
		e.Data, e.Encoding = base64.StdEncoding.EncodeToString(data), "base64"
	}
	return o.v.give(e)
}
