package session

import (
	"context"
	"fmt"
	"slices"

	"github.com/go-vercel/sandbox"
)

// Tail returns a cursor near the end of a session's stream, for [Client.Events]:
// behind it come the last commands that have ended with up to so many bytes of output
// together, or that many of the very last one, then the command that runs, from its
// start, and what follows. It looks no further back than the events that the session
// itself keeps. It needs a worker to be up.
func (c *Client) Tail(ctx context.Context, id string, bytes int64) (Cursor, error) {
	if err := checkID(id); err != nil {
		return Cursor{}, err
	}
	if bytes < 0 {
		return Cursor{}, fmt.Errorf("%w: a tail of %d bytes", sandbox.ErrInvalid, bytes)
	}
	w, leave := c.watch(id)
	defer leave()
	events, base, err := w.kept(ctx)
	if err != nil {
		return Cursor{}, err
	}
	return tail(events, base, bytes), nil
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
		more, all := w.reached(p)
		events = append(events, more...)
		switch {
		case len(more) > 0:
		case all, len(events) > 0:
			return events, base, nil
		default:
			select {
			case <-changed:
			case <-ctx.Done():
				return nil, 0, ctx.Err()
			}
		}
	}
}

// tail finds the cursor of [Client.Tail].
func tail(events []stored, base int, bytes int64) Cursor {
	at, left := base+len(events), bytes
	for i, e := range slices.Backward(events) {
		size := e.Event.Bytes
		if e.Event.Type == TypeCommandEnd && size > left {
			start := slices.IndexFunc(events[:i], func(s stored) bool {
				return s.Event.Type == TypeCommandStart && s.Event.ID == e.Event.ID
			})
			if left == bytes && left > 0 && start >= 0 { // the last that wrote anything
				return Cursor{Seq: base + start, Byte: 1 + size - left}
			}
			break
		}
		if e.Event.Type == TypeCommandEnd {
			left -= size
		}
		at = e.Event.Seq
	}
	return Cursor{Seq: at}
}
