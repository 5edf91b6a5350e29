package session

import (
	"bytes"
	"context"
	"iter"
	"time"

	"github.com/go-vercel/sandbox"
)

// keepLog is for how long the reader of an output goes on without a viewer: one that
// reconnects, or has asked for the end, does not have all of it read again.
const keepLog = 10 * time.Second

// keptLog is how many bytes of a running command's output are kept for viewers.
const keptLog = 1 << 20

// liveLog is the output of a command that runs, as far as it came and is kept. All
// viewers of a process share its reader, so that they cost the requests of one.
type liveLog struct {
	cancel context.CancelFunc

	// Guarded by the client's mutex.
	viewers int
	idle    *time.Timer   // since the last viewer has left
	pieces  []piece       // those that are kept
	base    int64         // before the first of them
	end     int64         // behind the last of them
	changed chan struct{} // closed and replaced at each change
	over    bool
	err     error // once it is over
}

// liveLog joins the reader of a command's output. The caller calls leave.
func (c *Client) liveLog(key string, chunks func(ctx context.Context) iter.Seq2[sandbox.LogChunk, error]) (l *liveLog, leave func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	l = c.logs[key]
	if l == nil {
		ctx, cancel := context.WithCancel(context.Background())
		l = &liveLog{cancel: cancel, changed: make(chan struct{})}
		c.logs[key] = l
		go c.readLog(ctx, key, l, chunks)
	}
	if l.viewers++; l.idle != nil {
		l.idle.Stop()
	}
	end := func() {
		if l.viewers == 0 {
			l.cancel()
			c.forgetLog(key, l)
		}
	}
	return l, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if l.viewers--; l.over {
			end()
		} else if l.viewers == 0 {
			l.idle = time.AfterFunc(keepLog, func() {
				c.mu.Lock()
				defer c.mu.Unlock()
				end()
			})
		}
	}
}

// forgetLog lets the next viewer read anew. The mutex is held.
func (c *Client) forgetLog(key string, l *liveLog) {
	if c.logs[key] == l {
		delete(c.logs, key)
	}
}

// read returns how many bytes of a command's output have come here.
func (c *Client) read(key string) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if l := c.logs[key]; l != nil {
		return l.end
	}
	return 0
}

func (c *Client) readLog(ctx context.Context, key string, l *liveLog, chunks func(ctx context.Context) iter.Seq2[sandbox.LogChunk, error]) {
	note := func(change func()) {
		c.mu.Lock()
		defer c.mu.Unlock()
		change()
		close(l.changed)
		l.changed = make(chan struct{})
	}
	var failed error
	for chunk, err := range chunks(ctx) {
		if err != nil {
			failed = err
			break
		}
		note(func() {
			l.end += int64(len(chunk.Data))
			l.pieces = append(l.pieces, piece{string(chunk.Stream), bytes.Clone(chunk.Data), l.end})
			for len(l.pieces) > 1 && l.end-l.pieces[0].end >= keptLog {
				l.base = l.pieces[0].end
				l.pieces = l.pieces[1:]
			}
		})
	}
	note(func() {
		if l.over, l.err = true, failed; failed != nil {
			c.forgetLog(key, l)
		}
	})
}

// logFrom returns the pieces that end behind a byte, unless some of what is behind it is
// not kept any more. More may come once changed is closed, if it is not over.
func (c *Client) logFrom(l *liveLog, at int64) (pieces []piece, kept, over bool, changed <-chan struct{}, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if at < l.base {
		return nil, false, false, nil, nil
	}
	first := len(l.pieces)
	for first > 0 && l.pieces[first-1].end > at {
		first--
	}
	return l.pieces[first:len(l.pieces):len(l.pieces)], true, l.over, l.changed, l.err
}

// follow gives what came of a shared output and what comes, behind what the viewer
// has, and reports whether the viewer is too far back for that.
func (o *outputs) follow(c *Client, l *liveLog) (behind bool, err error) {
	for {
		pieces, kept, over, changed, err := c.logFrom(l, o.skip)
		if !kept {
			return true, nil
		}
		for _, p := range pieces {
			o.pos = p.end - int64(len(p.data))
			if err := o.piece(p.stream, p.data); err != nil {
				return false, err
			}
		}
		switch {
		case len(pieces) > 0:
		case over:
			return false, err
		default:
			select {
			case <-changed:
			case <-o.ctx.Done():
				return false, o.ctx.Err()
			}
		}
	}
}
