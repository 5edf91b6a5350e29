package session

import (
	"bytes"
	"context"
	"iter"
	"time"

	"github.com/go-vercel/sandbox"
)

// keepLog is how long the reader of an output continues without a viewer. A viewer that
// reconnects then does not cause a second read of everything.
const keepLog = 10 * time.Second

// keptLog is how many bytes of a running command's output the client keeps for viewers.
const keptLog = 1 << 20

// liveLog is the kept output of a running command. All viewers in a process share its reader,
// so they cost no more requests than one.
type liveLog struct {
	cancel context.CancelFunc

	// Guarded by the client's mutex.
	viewers int
	idle    *time.Timer   // since the last viewer left
	pieces  []piece       // the kept ones
	base    int64         // before the first of them
	end     int64         // behind the last of them
	changed chan struct{} // closed and replaced at each change
	over    bool
	err     error // once it is over
}

// liveLog joins the reader of a command's output until the caller calls leave.
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

// forgetLog makes the next viewer start a new reader. The caller holds the mutex.
func (c *Client) forgetLog(key string, l *liveLog) {
	if c.logs[key] == l {
		delete(c.logs, key)
	}
}

// read returns how many bytes of a command's output the client has read.
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

// logFrom returns the pieces that end after a byte. kept is false if some bytes after it are no
// longer kept. Unless it is over, more pieces may come when changed is closed.
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

// follow yields the rest of a shared output, as it comes. behind reports that the viewer needs
// bytes that are no longer kept.
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
