package agent

import (
	"bytes"
	"context"
	"sync"
	"time"
)

// progressTick is the time between two reports of progress. Some clients cancel a call
// after a minute without one.
const progressTick = time.Second

// WithProgress returns a context with which [Toolset.Call] calls fn once a second while
// it runs, in a separate goroutine and never after it has returned. line is the last
// line that the tool bash has printed so far, or empty if there is none. Invisible
// characters and terminal escapes are escaped, as in results.
func WithProgress(ctx context.Context, fn func(line string)) context.Context {
	return context.WithValue(ctx, progressKey{}, &progress{fn: fn})
}

type progressKey struct{}

// progress keeps the end of a call's output and reports its last line.
type progress struct {
	fn  func(line string)
	mu  sync.Mutex
	end []byte
}

// progressFrom returns the progress that WithProgress has put into ctx, or nil.
func progressFrom(ctx context.Context) *progress {
	p, _ := ctx.Value(progressKey{}).(*progress)
	return p
}

// report calls fn once a second until the returned function is called.
func (p *progress) report() (stop func()) {
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

// line returns the last line of the output that is not empty.
func (p *progress) line() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	lines := bytes.FieldsFunc(p.end, func(r rune) bool { return r == '\n' || r == '\r' })
	if len(lines) == 0 {
		return ""
	}
	return oneLine(string(lines[len(lines)-1]))
}
