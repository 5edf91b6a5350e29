package console

import (
	"fmt"
	"sync"
	"time"

	"github.com/go-vercel/sandbox/internal/redact"
)

// spinner shows that the program is working: an animation at a terminal, one line
// elsewhere.
type spinner struct {
	out  *Stream
	stop chan struct{}
	done sync.WaitGroup
	once sync.Once
}

var frames = []string{"⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"}

// Spin starts a spinner. The caller stops it.
func Spin(out *Stream, text string) *spinner {
	s := &spinner{out: out, stop: make(chan struct{})}
	if !out.Rewrites() {
		fmt.Fprintf(out, "- %s\n", text)
		return s
	}
	shown := redact.Printable(text)
	s.done.Go(func() {
		tick := time.NewTicker(80 * time.Millisecond)
		defer tick.Stop()
		for i := 0; ; i++ {
			fmt.Fprintf(out.Raw, "\r\x1b[2K%s %s", out.Paint(Cyan, frames[i%len(frames)]), shown)
			select {
			case <-tick.C:
			case <-s.stop:
				fmt.Fprint(out.Raw, "\r\x1b[2K")
				return
			}
		}
	})
	return s
}

// Stop removes the spinner. It can be called more than once.
func (s *spinner) Stop() {
	s.once.Do(func() { close(s.stop) })
	s.done.Wait()
}
