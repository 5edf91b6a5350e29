package logstream

import (
	"context"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-vercel/sandbox/internal/api"
	"github.com/go-vercel/sandbox/internal/wire"
)

// watchedBody is the body of a stream that is checked for silence. An edge that has lost a
// stream keeps the connection open, and the reader would wait forever. After a time of silence
// the command is looked up. If it has ended and nothing follows, the stream is closed, and the
// Reader resumes it.
type watchedBody struct {
	io.ReadCloser
	reading atomic.Bool
	reads   atomic.Uint64 // number of reads started
	end     atomic.Pointer[wire.Command]

	ctx    context.Context
	cancel context.CancelFunc
	once   sync.Once

	mu    sync.Mutex
	cmd   Command
	timer *time.Timer // nil until the command is known
	seen  uint64      // the read that was in progress at the last tick
	wait  time.Duration
}

func watchBody(ctx context.Context, body io.ReadCloser, cmd *Command) *watchedBody {
	w := &watchedBody{ReadCloser: body, cmd: *cmd, wait: silence}
	w.ctx, w.cancel = context.WithCancel(ctx)
	return w
}

// watch starts checking the stream.
func (w *watchedBody) watch(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cmd.ID = id
	w.timer = time.AfterFunc(w.wait, w.tick)
}

func (w *watchedBody) Read(p []byte) (int, error) {
	w.reads.Add(1)
	w.reading.Store(true)
	n, err := w.ReadCloser.Read(p)
	w.reading.Store(false)
	return n, err
}

func (w *watchedBody) Close() error {
	w.once.Do(func() {
		w.cancel()
		w.mu.Lock()
		if w.timer != nil {
			w.timer.Stop()
		}
		w.mu.Unlock()
		_ = w.ReadCloser.Close() // read-only: closing it can't lose data
	})
	return nil
}

// commandEnd returns the ended command, or nil if the end is not known.
func (w *watchedBody) commandEnd() *wire.Command { return w.end.Load() }

// isSilent reports whether the same read is still in progress.
func (w *watchedBody) isSilent(since uint64) bool { return w.reading.Load() && w.reads.Load() == since }

// tick checks whether the stream has been silent since the last tick.
func (w *watchedBody) tick() {
	if w.ctx.Err() != nil {
		return
	}
	w.mu.Lock()
	now := w.reads.Load()
	before := w.seen
	w.seen = now
	w.mu.Unlock()
	if now != before || !w.isSilent(now) {
		w.schedule(silence)
		return
	}
	ctx, cancel := context.WithTimeout(w.ctx, endGrace)
	cmd, err := w.cmd.Look(ctx, true)
	late := ctx.Err() != nil
	cancel()
	switch {
	case err == nil && cmd.ExitCode != nil:
		// The end of the stream may still be in flight.
		if api.Sleep(w.ctx, endGrace) && w.isSilent(now) {
			w.end.Store(cmd)
			w.Close()
			return
		}
	case err != nil && !late && judge(err) == final:
		// There is nothing to wait for; reopening the log returns the error.
		w.Close()
		return
	}
	w.schedule(min(2*w.wait, maxSilence))
}

func (w *watchedBody) schedule(wait time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.wait = wait
	if w.ctx.Err() == nil {
		w.timer.Reset(wait)
	}
}
