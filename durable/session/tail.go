package session

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/durable"
)

// maxTail is how many bytes [Client.Tail] searches for lines.
const maxTail = 1 << 20

// Tail returns a cursor for [Client.Events] that points to the start of the last lines of
// output, of one command or of several. It searches at most 1 MiB, and only the events that
// the session itself keeps. Of a running command it knows what the worker reported with its
// last heartbeat. Tail needs a running worker.
func (c *Client) Tail(ctx context.Context, id string, lines int) (Cursor, error) {
	if lines < 0 {
		return Cursor{}, fmt.Errorf("%w: lines is %d, which is negative", sandbox.ErrInvalid, lines)
	}
	h, err := c.recent(ctx, id)
	if err != nil {
		return Cursor{}, err
	}
	at, searched := h.base+len(h.events), int64(0)
	for i, e := range slices.Backward(h.events) {
		size, start := h.output(i)
		if size > 0 && start < 0 {
			break // the session no longer keeps its start
		}
		if size > 0 {
			var text []byte
			if lines > 0 && searched < maxTail {
				if text, err = c.lastOutput(ctx, id, h.events[start], e.Event, size, min(size, maxTail-searched)); err != nil {
					return Cursor{}, err
				}
			}
			var n int
			n, lines = linesAtEnd(text, lines)
			searched += int64(n)
			if left := size - int64(n); left > 0 && (n > 0 || start == i) {
				return Cursor{Seq: h.base + start, Byte: 1 + left}, nil
			} else if left > 0 {
				break
			}
		}
		at = e.Event.Seq
	}
	return Cursor{Seq: at}, nil
}

// linesAtEnd returns the size of the last lines of a text, and how many lines are missing.
func linesAtEnd(text []byte, lines int) (n, missing int) {
	for n < len(text) && lines > 0 {
		rest := text[:len(text)-n-1] // without the end of the line
		n, lines = len(text)-(bytes.LastIndexByte(rest, '\n')+1), lines-1
	}
	return n, lines
}

// lastOutput returns the last n bytes of a command's output.
func (c *Client) lastOutput(ctx context.Context, id string, start stored, end Event, size, n int64) (text []byte, err error) {
	ctx, cancel := context.WithCancel(ctx)
	o := &outputReader{v: &viewer{c: c, ctx: ctx, id: id}, ctx: ctx, cancel: cancel, skip: size - n, pieces: make(chan piece)}
	defer o.stop()
	go func() {
		defer close(o.pieces)
		if end.Type != TypeCommandEnd {
			o.err = o.read(start, nil)
		} else {
			o.err = o.read(start, &end)
		}
	}()
	for p := range o.pieces {
		if text = append(text, p.data...); p.end >= size {
			return text[:min(int64(len(text)), n)], nil
		}
	}
	if errors.Is(o.err, fs.ErrNotExist) { // the output is lost, as an event will say
		return text, nil
	}
	return text, o.err
}

// recentEvents contains the events that a session keeps, and how much the running command
// has written.
type recentEvents struct {
	events  []stored
	base    int
	running string
	written int64
}

func (c *Client) recent(ctx context.Context, id string) (h recentEvents, err error) {
	if err := c.checkSession(ctx, id); err != nil {
		return h, err
	}
	w, leave := c.watch(id)
	defer leave()
	if h.events, h.base, err = w.keptEvents(ctx); err != nil {
		return h, err
	}
	for _, e := range slices.Backward(h.events) {
		if e.Event.Type == TypeCommandEnd {
			break
		}
		if e.Event.Type == TypeCommandStart && e.Event.CommandID != "" {
			h.running = e.Event.ID
			h.written, err = durable.Written(ctx, c.temporal, id, e.Event.CommandID)
			break
		}
	}
	return h, err
}

// If event i is the last event of a command, output returns the size of the command's
// output and the index of its start event, or -1 if that is unknown. Otherwise it returns 0
// and -1.
func (h recentEvents) output(i int) (size int64, start int) {
	switch e := h.events[i].Event; {
	case e.Type == TypeCommandStart && e.ID == h.running:
		return h.written, i
	case e.Type == TypeCommandEnd:
		return e.Bytes, slices.IndexFunc(h.events[:i], func(s stored) bool {
			return s.Event.Type == TypeCommandStart && s.Event.ID == e.ID
		})
	}
	return 0, -1
}

// keptEvents returns the committed events that the workflow keeps, and the number of the
// first.
func (w *watch) keptEvents(ctx context.Context) (events []stored, base int, err error) {
	for {
		changed := w.nextChange()
		from := base + len(events)
		p, err := w.queryPage(ctx, from)
		if err != nil {
			return nil, 0, err
		}
		if p.Base != base { // older events are in the store, or the workflow has continued as new
			if events, base = nil, p.Base; from > base {
				continue
			}
		}
		more, all := w.committedEvents(p, p.Events)
		events = append(events, more...)
		switch {
		case len(more) > 0:
			continue
		case all:
			return events, base, nil
		}
		select {
		case <-changed: // the session changed during the query
			continue
		default:
		}
		if len(events) > 0 {
			return events, base, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, 0, ctx.Err()
		}
	}
}
