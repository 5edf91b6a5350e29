package session

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"slices"
	"time"
	"unicode/utf8"

	"go.temporal.io/api/serviceerror"
)

// Events iterates over a session's events from a cursor on, and waits for new ones until the
// session or ctx ends. The events include the output of commands, live while they run. Each
// event, and each byte of output, comes once. To continue without a gap, in this process or
// another, pass the Cursor of the last event.
//
// The error matches [ErrCursor] if the cursor points beyond the last event, or into a part
// of the history that a restored database has lost: start over then. Events needs a running
// worker.
func (c *Client) Events(ctx context.Context, id string, from Cursor) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		if err := c.checkSession(ctx, id); err != nil {
			yield(Event{}, err)
			return
		}
		v := &viewer{c: c, ctx: ctx, id: id, at: from, yield: yield}
		if err := v.follow(); err != nil && !errors.Is(err, errLeft) {
			yield(Event{}, err)
		}
	}
}

var (
	// errLeft means that the caller ended the loop.
	errLeft = errors.New("the viewer has left")
	// errPending means that the next event or output is not available yet.
	errPending = errors.New("the event is not available yet")
)

// viewer is one reader of a session's events.
type viewer struct {
	c     *Client
	w     *watch
	ctx   context.Context
	id    string
	at    Cursor
	yield func(Event, error) bool
	// start is the command whose output the cursor is in, and out reads that output. Both
	// are nil if the cursor is in no output.
	start *stored
	out   *outputReader
	// failed counts consecutive queries that a worker could not answer.
	failed int
}

func (v *viewer) yieldEvent(e Event) error {
	e.Cursor = v.at
	if !v.yield(e, nil) {
		return errLeft
	}
	return nil
}

func (v *viewer) yieldStored(s stored) error {
	e, err := v.c.archive.event(v.ctx, v.id, s)
	if err != nil {
		return err
	}
	v.at.At = s.Event.At
	return v.yieldEvent(e)
}

func (v *viewer) follow() error {
	w, leave := v.c.watch(v.id)
	defer leave()
	v.w = w
	defer func() { v.out.stop() }()
	for {
		changed := w.nextChange()
		_, terminated := w.end()
		events, closed, err := v.page()
		if err == nil {
			err = v.events(events)
		}
		switch {
		case err == nil && closed:
			return nil
		case err == nil && len(events) > 0:
			continue
		case err == nil && terminated:
			return v.yieldTerminated()
		case err != nil && !errors.Is(err, errPending):
			return err
		}
		if err := v.wait(changed, err != nil); err != nil {
			return err
		}
	}
}

// yieldTerminated yields the result of a session whose workflow was terminated. The
// workflow itself could not emit one.
func (v *viewer) yieldTerminated() error {
	v.at = Cursor{Seq: v.at.next()}
	return v.yieldEvent(Event{Type: TypeResult, Seq: v.at.Seq, Status: "failed", Error: "the session's workflow was terminated"})
}

// wait yields output until the session changes, or until it is time to look again.
func (v *viewer) wait(changed <-chan struct{}, pending bool) error {
	var again <-chan time.Time
	if pending { // what is pending may come without a visible change
		again = time.After(time.Second)
	}
	for {
		var pieces <-chan piece
		if v.out != nil && !v.out.delivered {
			pieces = v.out.pieces
		}
		select {
		case p, more := <-pieces:
			if !more {
				if err := v.outputEnded(); errors.Is(err, errPending) {
					again = time.After(time.Second)
				} else if err != nil {
					return err
				}
				continue
			}
			if err := v.yieldOutput(p); err != nil {
				return err
			}
		case <-changed: // other changes usually follow
			changed, again = nil, time.After(v.c.pause())
		case <-again:
			return nil
		case <-v.ctx.Done():
			return v.ctx.Err()
		}
	}
}

// events yields events, with the output of commands. While a command runs, its output does
// not delay other events, only the event of its end.
func (v *viewer) events(events []stored) error {
	for i, e := range events {
		seq := e.Event.Seq
		if seq == v.at.Seq && e.Event.Type != TypeCommandStart {
			v.at = Cursor{Seq: seq} // the event has no output
		}
		switch {
		case v.at.Byte > 0 && seq == v.at.Seq:
			v.start = &events[i]
		case seq < v.at.next():
			continue
		case e.Event.Type == TypeCommandStart:
			if err := v.finishOutput(nil); err != nil {
				return err
			}
			v.at, v.start = Cursor{Seq: seq, Byte: 1}, &events[i]
			if err := v.yieldStored(e); err != nil {
				return err
			}
		default:
			if v.start != nil && e.Event.Type == TypeCommandEnd && e.Event.ID == v.start.Event.ID {
				if err := v.finishOutput(&e.Event); err != nil {
					return err
				}
			}
			if v.at.Byte > 0 {
				v.at.Ahead++
			} else {
				v.at = Cursor{Seq: seq + 1}
			}
			if err := v.yieldStored(e); err != nil {
				return err
			}
		}
	}
	if v.start != nil && v.out == nil {
		v.startOutput(nil)
	}
	return nil
}

// page returns events from the cursor on, and whether they are the last ones.
func (v *viewer) page() ([]stored, bool, error) {
	from := v.at.next()
	if v.at.Byte > 0 && v.start == nil {
		from = v.at.Seq // read the command's event again, for its handle
	}
	p, err := v.w.queryPage(v.ctx, from)
	if _, ok := errors.AsType[*serviceerror.QueryFailed](err); ok {
		// The run is just starting, or the worker was too busy. If the worker's code does
		// not fit the history, every query fails.
		if v.failed++; v.failed < maxFailed {
			return nil, false, errPending
		}
	}
	if err != nil {
		return nil, false, err
	}
	v.failed = 0
	if p.Next > 0 && from > p.Next {
		return nil, false, beyondEnd(v.at, p.Next)
	}
	if from >= p.Base {
		events, all := v.w.committedEvents(p, p.Events)
		before, _ := v.w.committedEvents(p, p.Before)
		if v.lostLastEvent(before) || v.lostLastEvent(events) {
			return nil, false, lostEvent(v.at)
		}
		if !all && len(events) == 0 {
			return nil, false, errPending
		}
		return events, p.Closed && all, nil
	}
	events, err := v.c.archive.get(v.ctx, p.Dir, p.Stored, from)
	if err != nil || len(events) > 0 {
		return events, false, err
	}
	v.leaveOutput()
	v.at = Cursor{Seq: p.Base}
	if err := v.yieldEvent(Event{Type: TypeTruncated, From: p.Base}); err != nil {
		return nil, false, err
	}
	return v.page()
}

// lostLastEvent reports whether the last event that the viewer got is gone: another event has
// its number now.
func (v *viewer) lostLastEvent(events []stored) bool {
	return v.at.At > 0 && slices.ContainsFunc(events, func(s stored) bool {
		return s.Event.Seq == v.at.next()-1 && s.Event.At != v.at.At
	})
}

// lostEvent returns the error for a cursor that comes after a lost event.
func lostEvent(at Cursor) error {
	return fmt.Errorf("%w: a restored database has replaced event %d", ErrCursor, at.next()-1)
}

// checkCursor returns ErrCursor if the last event before the cursor is lost from the history.
// Routes call it before they begin a stream, whose status can't change later.
func (c *Client) checkCursor(ctx context.Context, id string, at Cursor) error {
	w, leave := c.watch(id)
	defer leave()
	v := &viewer{at: at}
	for {
		changed := w.nextChange()
		p, err := w.queryPage(ctx, at.next())
		if err != nil {
			return err
		}
		before, all := w.committedEvents(p, p.Before)
		if v.lostLastEvent(before) {
			return lostEvent(at)
		}
		if all {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// beyondEnd returns the error for a cursor beyond the last event. It belongs to another
// session or to lost history, and no event would ever follow it.
func beyondEnd(at Cursor, events int) error {
	return fmt.Errorf("%w: %s is beyond the session's %d events", ErrCursor, at, events)
}

// maxFailed is how many consecutive queries, a second apart, may fail.
const maxFailed = 30

// startOutput starts to read the rest of the output that the cursor is in.
func (v *viewer) startOutput(end *Event) {
	ctx, cancel := context.WithCancel(v.ctx)
	o := &outputReader{v: v, ctx: ctx, cancel: cancel, skip: v.at.Byte - 1, pieces: make(chan piece)}
	v.out = o
	start := *v.start
	go func() {
		defer close(o.pieces)
		o.err = o.read(start, end)
	}()
}

// finishOutput yields the rest of the output that the cursor is in. end is the event of the
// command's end, if it is known.
func (v *viewer) finishOutput(end *Event) error {
	for v.start != nil {
		if v.out == nil {
			v.startOutput(end)
		}
		if !v.out.delivered {
			for p := range v.out.pieces {
				if err := v.yieldOutput(p); err != nil {
					return err
				}
			}
			err := v.outputEnded()
			if errors.Is(err, errPending) && end != nil {
				continue // now its end is known
			}
			if err != nil || v.start == nil {
				return err
			}
		}
		v.leaveOutput()
	}
	return nil
}

// leaveOutput moves the cursor from an output to the next event.
func (v *viewer) leaveOutput() {
	v.out.stop()
	v.at, v.start, v.out = Cursor{Seq: v.at.next(), At: v.at.At}, nil, nil
}

// outputEnded handles the end of the output's reader. It yields an event for output that is
// lost for good, and returns any other error, after which a retry may succeed.
func (v *viewer) outputEnded() error {
	err := v.out.err
	_, broken := errors.AsType[*json.SyntaxError](err)
	switch {
	case err == nil:
		v.out.delivered = true
		return nil
	case broken, errors.Is(err, fs.ErrNotExist):
		e := Event{Type: TypeOutputLost, ID: v.start.Event.ID, Error: "no output is stored"}
		if broken {
			e.Error = "the stored output is damaged"
		}
		v.leaveOutput()
		return v.yieldEvent(e)
	}
	v.out.stop()
	v.out = nil
	return err
}

// yieldOutput yields a piece of output as an event.
func (v *viewer) yieldOutput(p piece) error {
	v.at.Byte = p.end + 1
	e := Event{Type: TypeCommandOutput, Seq: v.at.Seq, ID: v.start.Event.ID, Stream: p.stream, Data: string(p.data)}
	if !utf8.Valid(p.data) {
		e.Data, e.Encoding = base64.StdEncoding.EncodeToString(p.data), "base64"
	}
	return v.yieldEvent(e)
}
