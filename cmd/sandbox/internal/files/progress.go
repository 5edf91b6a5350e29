package files

import (
	"context"
	"fmt"
	"io/fs"
	"math"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/charmbracelet/x/ansi"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/line"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/screen"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/units"
	"github.com/go-vercel/sandbox/internal/redact"
)

// bar shows the progress of a transfer.
type bar struct {
	update func(sandbox.Progress)
	done   func()
}

// A transfer shows its progress after progressAfter, and then every progressEvery. Where a
// line can't be overwritten, it prints a line every progressLines.
const (
	progressAfter = 300 * time.Millisecond
	progressEvery = 100 * time.Millisecond
	progressLines = 5 * time.Second
)

// newBar returns the bar of a file, or of a directory if name is empty. It shows nothing
// unless standard error is a terminal or an option requests it.
func newBar(s *screen.Screen, name string, o *CopyOptions, total int64) bar {
	return newBarOf(s, &progress{name: name, total: total}, o)
}

// newDirBar returns the bar of a local directory. Its files are counted during the copy.
func newDirBar(ctx context.Context, s *screen.Screen, dir string, o *CopyOptions) bar {
	p := &progress{total: -1}
	b := newBarOf(s, p, o)
	if b.update == nil || len(o.Exclude)+len(o.Include) > 0 || o.NoClobber {
		return b
	}
	ctx, cancel := context.WithCancel(ctx)
	var counting sync.WaitGroup
	counting.Go(func() {
		files, bytes := 0, int64(0)
		err := filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() {
				return ctx.Err()
			}
			if info, err := d.Info(); err == nil {
				files++
				bytes += info.Size()
			}
			return ctx.Err()
		})
		if err == nil {
			p.expect(files, bytes)
		}
	})
	return bar{b.update, func() {
		cancel()
		counting.Wait()
		b.done()
	}}
}

func newBarOf(s *screen.Screen, p *progress, o *CopyOptions) bar {
	if o.NoProgress || s.Opts.Quiet || !s.Err.Rewrites() && !o.Progress {
		return bar{done: func() {}}
	}
	p.begun = time.Now()
	shown, every := time.Time{}, progressEvery
	if !s.Err.Rewrites() {
		every = progressLines
	}
	return bar{
		update: func(now sandbox.Progress) {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.note(now)
			at := time.Now()
			if at.Sub(shown) < every || shown.IsZero() && at.Sub(p.begun) < progressAfter && !o.Progress {
				return
			}
			shown = at
			if s.Err.Rewrites() {
				fmt.Fprintf(s.Err.Raw, "\r%s\x1b[K", p.line(at, s.Err.Width()-1))
			} else {
				fmt.Fprintln(s.Err, p.line(at, s.Err.Width()))
			}
		},
		done: func() {
			p.mu.Lock()
			defer p.mu.Unlock()
			if !shown.IsZero() && s.Err.Rewrites() {
				fmt.Fprint(s.Err.Raw, "\r\x1b[K")
			}
			shown = time.Time{}
		},
	}
}

// progress is the state of a transfer.
type progress struct {
	mu    sync.Mutex
	name  string // of the file; empty for a directory
	begun time.Time

	path        string // the current file
	files, all  int    // how many files were begun, and how many there are, or 0 if that is unknown
	done, total int64
}

func (p *progress) expect(files int, bytes int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all, p.total = files, bytes
}

func (p *progress) note(now sandbox.Progress) {
	if now.Path != p.path {
		p.path = now.Path
		p.files++
	}
	p.done = now.Done
	if now.Total >= 0 {
		p.total = now.Total
	}
}

// fileCost is added to the size of each file of a directory to compute the progress,
// because small files take time, too.
const fileCost = 16 << 10

// barWidth is the width of the bar if there is room.
const barWidth = 20

// line returns the progress in at most width columns. It leaves out the name of the current
// file first, then the bar, then the sizes.
func (p *progress) line(now time.Time, width int) string {
	took := now.Sub(p.begun)
	sizes, figures := units.Bytes(p.done), units.Bytes(int64(float64(p.done)/max(took.Seconds(), 0.001)))+"/s"
	percent, share := "", 0.0
	if p.total >= max(p.done, 1) {
		sizes += " of " + units.Bytes(p.total)
		share = float64(p.done) / float64(p.total)
		if p.all >= p.files {
			share = float64(p.done+fileCost*int64(p.files)) / float64(p.total+fileCost*int64(p.all))
		}
		percent = fmt.Sprintf("%3.0f%%", 100*share)
		if share > 0 {
			figures += ", " + remainingTime(time.Duration(float64(took)*(1-share)/share))
		}
	}
	what := redact.Printable(p.name)
	if p.name == "" {
		what = line.Plural(p.files, "file", "files")
		if p.all >= p.files {
			what = fmt.Sprintf("%s of %s files", units.Grouped(int64(p.files)), units.Grouped(int64(p.all)))
		}
	}
	full := int(barWidth * share)
	bar := strings.Repeat("█", full) + strings.Repeat("░", barWidth-full)
	if percent == "" {
		bar = ""
	}
	current := ""
	if p.name == "" {
		current = redact.Printable(path.Base(p.path))
	}
	for _, parts := range [][]string{
		{percent, bar, sizes, figures, current}, {percent, bar, sizes, figures}, {percent, sizes, figures}, {percent, figures}, {percent},
	} {
		text := strings.Join(withoutEmpty(parts), "  ")
		if n := width - ansi.StringWidth(text) - 2; n >= min(ansi.StringWidth(what), 24) {
			return shorten(what, n) + "  " + text
		}
	}
	return ansi.Truncate(percent+"  "+what, width, "…")
}

func withoutEmpty(parts []string) (out []string) {
	for _, p := range parts {
		if p != "" {
			out = append(out, p)
		}
	}
	return out
}

// remainingTime formats the remaining time.
func remainingTime(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%.0f s left", math.Ceil(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%.0f min left", d.Minutes())
	}
	return fmt.Sprintf("%.0f h left", d.Hours())
}

// shorten cuts off the start of a name.
func shorten(name string, width int) string {
	if ansi.StringWidth(name) <= width {
		return name
	}
	return ansi.TruncateLeft(name, ansi.StringWidth(name)-width+1, "…")
}
