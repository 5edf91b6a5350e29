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

// watched is the body of a stream that is checked for silence: an edge that has
// lost a stream keeps its connection open, and the reader would wait forever.
// If the stream has been silent for a while the command is checked; if it has
// ended, and nothing follows, the stream is closed, and resumed.
type watched struct {
	io.ReadCloser
	reading atomic.Bool
	reads   atomic.Uint64 // begun
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

func watch(ctx context.Context, body io.ReadCloser, cmd *Command) *watched {
	w := &watched{ReadCloser: body, cmd: *cmd, wait: silence}
	w.ctx, w.cancel = context.WithCancel(ctx)
	return w
}

// watch starts checking the stream.
func (w *watched) watch(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cmd.ID = id
	w.timer = time.AfterFunc(w.wait, w.tick)
}

func (w *watched) Read(p []byte) (int, error) {
	w.reads.Add(1)
	w.reading.Store(true)
	n, err := w.ReadCloser.Read(p)
	w.reading.Store(false)
	return n, err
}

func (w *watched) Close() error {
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

// ended returns how the command ended, if that was found out.
func (w *watched) ended() *wire.Command { return w.end.Load() }

// silent reports whether the same read is still in progress.
func (w *watched) silent(since uint64) bool { return w.reading.Load() && w.reads.Load() == since }

// tick checks whether the stream has been silent since the last tick.
func (w *watched) tick() {
	if w.ctx.Err() != nil {
		return
	}
	w.mu.Lock()
	now := w.reads.Load()
	before := w.seen
	w.seen = now
	w.mu.Unlock()
	if now != before || !w.silent(now) {
		w.again(silence)
		return
	}
	ctx, cancel := context.WithTimeout(w.ctx, endGrace)
	cmd, err := w.cmd.Look(ctx, true)
	late := ctx.Err() != nil
	cancel()
	switch {
	case err == nil && cmd.ExitCode != nil:
		// The end of the stream may be on its way.
		if api.Sleep(w.ctx, endGrace) && w.silent(now) {
			w.end.Store(cmd)
			w.Close()
			return
		}
	case err != nil && !late && judge(err) == final:
		// There is nothing to wait for; reopening the log reports why.
		w.Close()
		return
	}
	w.again(min(2*w.wait, maxSilence))
}

func (w *watched) again(wait time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.wait = wait
	if w.ctx.Err() == nil {
		w.timer.Reset(wait)
	}
}
