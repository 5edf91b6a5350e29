package files

import (
	"testing"
	"time"

	"github.com/charmbracelet/x/ansi"
	"github.com/stretchr/testify/assert"

	"github.com/go-vercel/sandbox"
)

// TestProgressLine checks the progress line for different widths.
func TestProgressLine(t *testing.T) {
	t.Parallel()
	begun := time.Unix(0, 0)
	file := &progress{name: "big.bin", begun: begun, total: -1}
	file.note(sandbox.Progress{Path: ".upload-x", Done: 128 << 20, Total: 320 << 20})
	long := &progress{name: "a-file-whose-name-is-rather-long-and-goes-on.bin", begun: begun}
	long.note(sandbox.Progress{Done: 128 << 20, Total: 320 << 20})
	dir := &progress{begun: begun, total: -1}
	dir.note(sandbox.Progress{Path: "a/x", Done: 5, Total: -1})
	dir.note(sandbox.Progress{Path: "a/x", Done: 10, Total: -1})
	dir.note(sandbox.Progress{Path: "a/inner.txt", Done: 64 << 20, Total: -1})
	counted := &progress{begun: begun, files: 12407, path: "x"}
	counted.expect(20000, 200<<20)
	counted.note(sandbox.Progress{Path: "a/inner.txt", Done: 122 << 20, Total: -1})
	for _, row := range []struct {
		p     *progress
		width int
		want  string
	}{
		{file, 120, "big.bin   40%  ████████░░░░░░░░░░░░  128 MiB of 320 MiB  64 MiB/s, 3 s left"},
		{file, 60, "big.bin   40%  128 MiB of 320 MiB  64 MiB/s, 3 s left"},
		{file, 35, "big.bin   40%  64 MiB/s, 3 s left"},
		{file, 14, "big.bin   40%"},
		{file, 6, " 40% …"},
		{long, 60, "…me-is-rather-long-and-goes-on.bin   40%  64 MiB/s, 3 s left"},
		{long, 120, "a-file-whose-name-is-rather-long-and-goes-on.bin   40%  ████████░░░░░░░░░░░░  128 MiB of 320 MiB  64 MiB/s, 3 s left"},
		{dir, 80, "2 files  64 MiB  32 MiB/s  inner.txt"},
		{dir, 30, "2 files  64 MiB  32 MiB/s"},
		{counted, 120, "12,408 of 20,000 files   62%  ████████████░░░░░░░░  122 MiB of 200 MiB  61 MiB/s, 2 s left  inner.txt"},
		{counted, 80, "12,408 of 20,000 files   62%  122 MiB of 200 MiB  61 MiB/s, 2 s left"},
	} {
		got := row.p.line(begun.Add(2*time.Second), row.width)
		assert.LessOrEqual(t, ansi.StringWidth(got), row.width, got)
		assert.Equal(t, row.want, got)
	}
	for d, want := range map[time.Duration]string{100 * time.Millisecond: "1 s left", 90 * time.Second: "2 min left", 3 * time.Hour: "3 h left"} {
		assert.Equal(t, want, remainingTime(d))
	}
}
