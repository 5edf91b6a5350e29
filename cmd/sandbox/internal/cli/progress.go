package cli

import (
	"fmt"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/internal/redact"
)

// bar shows how far a transfer has come.
type bar struct {
	update func(sandbox.Progress)
	done   func()
}

// progressAfter is how long a transfer has to take before its progress is shown.
const progressAfter = 300 * time.Millisecond

// bar makes a progress bar for so many bytes, -1 if that is not known. It shows
// nothing unless standard error is a terminal, or an option requests it.
func (s *stdio) bar(o *copyOptions, total int64) bar { return s.barOf("", o, total) }

// barOf is the bar of one file, which is shown in the place of the paths that its
// transfer has on the way.
func (s *stdio) barOf(name string, o *copyOptions, total int64) bar {
	if o.noProgress || s.opts.quiet || !s.err.Rewrites() && !o.progress {
		return bar{done: func() {}}
	}
	var (
		mu    sync.Mutex
		p     *progressbar.ProgressBar
		begun = time.Now()
	)
	return bar{
		update: func(now sandbox.Progress) {
			mu.Lock()
			defer mu.Unlock()
			if p != nil && now.Total > 0 && now.Total != p.GetMax64() {
				p.ChangeMax64(now.Total)
			}
			if p == nil {
				if time.Since(begun) < progressAfter && !o.progress {
					return
				}
				if now.Total >= 0 {
					total = now.Total
				}
				p = newBar(s, total)
			}
			p.Describe(shorten(redact.Printable(first(name, now.Path)), widestPath(s.err.Width())))
			_ = p.Set64(now.Done) // what is shown can't fail the transfer
		},
		done: func() {
			mu.Lock()
			defer mu.Unlock()
			if p != nil && !p.IsFinished() {
				_ = p.Exit() // as above; what did not come to its end is not shown as if it had
				fmt.Fprintln(s.err)
			}
			p = nil
		},
	}
}

// figures is how much of the line the numbers next to the bar take.
const figures = 52

// widestPath and widestBar divide what is left of a line of so many columns: one
// that is broken in two can't be written over.
func widestPath(columns int) int { return min(30, max(6, (columns-figures)/2)) }

func widestBar(columns int) int { return min(30, max(2, columns-figures-widestPath(columns))) }

func newBar(s *stdio, total int64) *progressbar.ProgressBar {
	columns := s.err.Width()
	return progressbar.NewOptions64(total,
		progressbar.OptionSetWriter(s.err), progressbar.OptionShowBytes(true), progressbar.OptionShowTotalBytes(true), progressbar.OptionShowCount(),
		progressbar.OptionSetPredictTime(columns >= figures), progressbar.OptionSetElapsedTime(columns >= figures), progressbar.OptionThrottle(100*time.Millisecond),
		progressbar.OptionSetWidth(widestBar(columns)), progressbar.OptionUseANSICodes(s.err.Rewrites()), progressbar.OptionEnableColorCodes(false),
		progressbar.OptionSetRenderBlankState(false),
		progressbar.OptionOnCompletion(func() { _, _ = s.err.Write([]byte("\n")) }),
	)
}

// shorten cuts the beginning of a path off.
func shorten(path string, width int) string {
	r := []rune(path)
	if len(r) <= width {
		return path
	}
	return "…" + string(r[len(r)-width+1:])
}
