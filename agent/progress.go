package agent

import (
	"bytes"
	"context"
	"sync"
	"time"
)

// progressTick is how often somebody is told that a call goes on. Some programs give up
// a call of which they hear nothing for a minute.
const progressTick = time.Second

// WithProgress returns a context for [Toolset.Call] with which fn is called each
// second while the call goes on, in a goroutine of its own and never after Call has
// returned. line is the last one that bash has written so far, shown as in results:
// what does not show, or acts on a terminal, is spelled out. It is empty as long as
// there is none.
func WithProgress(ctx context.Context, fn func(line string)) context.Context {
	return context.WithValue(ctx, progressKey{}, &progress{fn: fn})
}

type progressKey struct{}

// progress has the end of the output of a call.
type progress struct {
	fn  func(line string)
	mu  sync.Mutex
	end []byte
}

// progressOf returns what is told of a call's progress, or nil.
func progressOf(ctx context.Context) *progress {
	p, _ := ctx.Value(progressKey{}).(*progress)
	return p
}

// tell begins to tell, until the returned function is called.
func (p *progress) tell() (stop func()) {
	if p == nil {
		return func() {}
	}
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		t := time.NewTicker(progressTick)
		defer t.Stop()
		for {
			select {
			case <-t.C:
				p.fn(p.line())
			case <-done:
				return
			}
		}
	})
	return func() {
		close(done)
		wg.Wait()
	}
}

// Write implements [io.Writer]. It never fails.
func (p *progress) Write(data []byte) (int, error) {
	const kept = 4 << 10
	p.mu.Lock()
	defer p.mu.Unlock()
	p.end = append(p.end, data[max(0, len(data)-kept):]...)
	p.end = p.end[:copy(p.end, p.end[max(0, len(p.end)-kept):])]
	return len(data), nil
}

// line returns the last line that has something.
func (p *progress) line() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	lines := bytes.FieldsFunc(p.end, func(r rune) bool { return r == '\n' || r == '\r' })
	if len(lines) == 0 {
		return ""
	}
	return line(string(lines[len(lines)-1]))
}
