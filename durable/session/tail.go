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

// Tail returns a cursor near the end of a session's stream, for [Client.Events]:
// behind it come the last commands with up to so many bytes of output together, or
// that many of the very last one, then what follows. Of a command that runs, what it
// has written counts as far as another viewer of this client has read, or its worker
// has told, which it does with each heartbeat. It looks no further back than the
// events that the session itself keeps. It needs a worker to be up.
func (c *Client) Tail(ctx context.Context, id string, bytes int64) (Cursor, error) {
	if err := c.check(ctx); err != nil {
		return Cursor{}, err
	}
	if bytes < 0 {
		return Cursor{}, fmt.Errorf("%w: a tail of %d bytes", sandbox.ErrInvalid, bytes)
	}
	h, err := c.heard(ctx, id)
	if err != nil {
		return Cursor{}, err
	}
	return h.tail(bytes), nil
}

// maxLines is how many bytes are searched for lines.
const maxLines = 1 << 20

// TailLines is [Client.Tail] with a number of lines, and looks for them in the last
// MiB of output.
func (c *Client) TailLines(ctx context.Context, id string, lines int) (Cursor, error) {
	if err := c.check(ctx); err != nil {
		return Cursor{}, err
	}
	if lines < 0 {
		return Cursor{}, fmt.Errorf("%w: a tail of %d lines", sandbox.ErrInvalid, lines)
	}
	h, err := c.heard(ctx, id)
	if err != nil {
		return Cursor{}, err
	}
	found := int64(0)
	for i := len(h.events) - 1; i >= 0 && lines > 0 && found < maxLines; i-- {
		size, start := h.output(i)
		if size == 0 || start < 0 {
			continue
		}
		text, err := c.lastOutput(ctx, id, h.events[start], h.events[i].Event, size, min(size, maxLines-found))
		if err != nil {
			return Cursor{}, err
		}
		n := 0
		n, lines = linesAtEnd(text, lines)
		if found += int64(n); n < len(text) {
			// The place is within this output, which Tail allows in the last one alone.
			return Cursor{Seq: h.base + start, Byte: 1 + size - int64(n)}, nil
		}
	}
	return h.tail(found), nil
}

// linesAtEnd returns how many bytes the last lines of a text have, and how many lines
// it has too few.
func linesAtEnd(text []byte, lines int) (n, missing int) {
	for n < len(text) && lines > 0 {
		rest := text[:len(text)-n-1] // without the end of the line
		n, lines = len(text)-(bytes.LastIndexByte(rest, '\n')+1), lines-1
	}
	return n, lines
}

// lastOutput returns the last n of the bytes that a command has written.
func (c *Client) lastOutput(ctx context.Context, id string, start stored, end Event, size, n int64) (text []byte, err error) {
	ctx, cancel := context.WithCancel(ctx)
	o := &outputs{v: &viewer{c: c, ctx: ctx, id: id}, ctx: ctx, cancel: cancel, skip: size - n, pieces: make(chan piece)}
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
	if errors.Is(o.err, fs.ErrNotExist) { // it is lost, as the viewer will hear
		return text, nil
	}
	return text, o.err
}

// heard is what is known of a session's events, and how much the command that runs
// has written.
type heard struct {
	events  []stored
	base    int
	running string
	written int64
}

func (c *Client) heard(ctx context.Context, id string) (h heard, err error) {
	if err := c.confine(ctx, id); err != nil {
		return h, err
	}
	w, leave := c.watch(id)
	defer leave()
	if h.events, h.base, err = w.kept(ctx); err != nil {
		return h, err
	}
	for _, e := range slices.Backward(h.events) {
		if e.Event.Type == TypeCommandEnd {
			break
		}
		if e.Event.Type == TypeCommandStart && e.Event.CommandID != "" {
			h.running = e.Event.ID
			h.written, err = durable.Written(ctx, c.temporal, id, e.Event.CommandID)
			h.written = max(h.written, c.read(string(e.Handle)))
			break
		}
	}
	return h, err
}

// output returns how much a command has written whose last event this is, and the
// index of its start; that is -1 if it is not known.
func (h heard) output(i int) (size int64, start int) {
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

// kept returns the events that the workflow keeps and the history has reached, and
// the number of the first of them.
func (w *watch) kept(ctx context.Context) (events []stored, base int, err error) {
	for {
		changed := w.next()
		from := base + len(events)
		p, err := w.ask(ctx, from)
		if err != nil {
			return nil, 0, err
		}
		if p.Base != base { // it keeps none before, or has continued as new meanwhile
			if events, base = nil, p.Base; from > base {
				continue
			}
		}
		more, all := w.reached(p, p.Events)
		events = append(events, more...)
		switch {
		case len(more) > 0:
			continue
		case all:
			return events, base, nil
		}
		select {
		case <-changed: // while it was asked
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

// tail finds the cursor of [Client.Tail].
func (h heard) tail(bytes int64) Cursor {
	at, left := h.base+len(h.events), bytes
	for i, e := range slices.Backward(h.events) {
		size, start := h.output(i)
		if runs := start == i; size > left {
			if left == bytes && (left > 0 || runs) && start >= 0 { // the last that wrote anything
				return Cursor{Seq: h.base + start, Byte: 1 + size - left}
			}
			break
		}
		left -= size
		at = e.Event.Seq
	}
	return Cursor{Seq: at}
}
