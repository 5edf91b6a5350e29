package outputs_test

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/go-vercel/sandbox/outputs"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// writeInPieces writes text in pieces of random lengths.
func writeInPieces(t *testing.T, w io.Writer, r *rand.Rand, text string) {
	t.Helper()
	for len(text) > 0 {
		n := 1 + r.IntN(min(len(text), 1+r.IntN(len(text))))
		got, err := io.WriteString(w, text[:n])
		require.NoError(t, err)
		require.Equal(t, n, got)
		text = text[n:]
	}
}

func TestHeadTail(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a", 32<<10)
	for _, test := range []struct {
		name, text, want string
		most             int
	}{
		{"nothing", "", "", 4},
		{"the beginning", "abc", "abc", 4},
		{"both", "abcdefgh", "abcdefgh", 4},
		{"more", "abcdefghi", "abcd\n... omitting 1 bytes ...\nfghi", 4},
		{"much more", "abcd" + strings.Repeat("x", 1000) + "efgh", "abcd\n... omitting 1000 bytes ...\nefgh", 4},
		{"bytes", "\x80" + strings.Repeat("x", 10) + "\xff", "\x80\n... omitting 10 bytes ...\n\xff", 1},
		{"default", long + "bc" + long, long + "\n... omitting 2 bytes ...\n" + long, 0},
		{"everything", "abcde", "abcde", math.MaxInt},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(20) {
				kept := outputs.HeadTail{Max: test.most}
				writeInPieces(t, &kept, rand.New(rand.NewPCG(seed, 0)), test.text)
				require.Equal(t, test.want, kept.String())
				require.EqualValues(t, len(test.text), kept.Total())
			}
		})
	}
}

// TestHeadTailMemory: the memory is bounded, however much is written.
func TestHeadTailMemory(t *testing.T) {
	kept := outputs.HeadTail{Max: 1 << 10}
	piece := make([]byte, 1000)
	allocated := testing.AllocsPerRun(1, func() {
		for range 10_000 {
			_, _ = kept.Write(piece)
		}
	})
	assert.Zero(t, allocated, "a full writer allocates nothing")
	assert.Less(t, len(kept.Bytes()), 3<<10)
}

func TestTail(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, text, want string
		most             int
	}{
		{"nothing", "", "", 4},
		{"all", "abcd", "abcd", 4},
		{"more", "abcde", "bcde", 4},
		{"much more", strings.Repeat("x", 1000) + "abcd", "abcd", 4},
		{"in the middle of a character", "xx€yz", "yz", 4},
		{"after a character", "x€yz", "€yz", 5},
		{"no UTF-8 that nothing was cut from", "\x80\x81", "\x80\x81", 4},
		{"no UTF-8", strings.Repeat("\x80", 9), "\x80", 4},
		{"default", strings.Repeat("x", 1<<16) + "y", strings.Repeat("x", 1<<16-1) + "y", 0},
		{"everything", "abcde", "abcde", math.MaxInt},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(20) {
				tail := outputs.Tail{Max: test.most}
				writeInPieces(t, &tail, rand.New(rand.NewPCG(seed, 0)), test.text)
				require.Equal(t, test.want, tail.String())
				require.EqualValues(t, len(test.text), tail.Total())
			}
		})
	}
}

// TestTailMemory: the memory is bounded, however much is written.
func TestTailMemory(t *testing.T) {
	tail := outputs.Tail{Max: 1 << 20}
	piece := make([]byte, 7000)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range (64 << 20) / len(piece) {
		_, _ = tail.Write(piece)
	}
	runtime.ReadMemStats(&after)
	assert.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(32<<20))
}

// shortWriter is a writer that accepts a limited number of bytes, with or without an error.
type shortWriter struct {
	strings.Builder
	remaining int
	err       error
}

func (s *shortWriter) Write(p []byte) (int, error) {
	n, _ := s.Builder.Write(p[:min(len(p), s.remaining)])
	if s.remaining -= n; n < len(p) {
		return n, s.err
	}
	return n, nil
}

func TestLimit(t *testing.T) {
	t.Parallel()
	for _, most := range []int64{0, 1, 5, 6, 7} {
		var got strings.Builder
		w := outputs.Limit(&got, most)
		written := 0
		var err error
		for _, piece := range []string{"ab", "", "cde", "f", "", "gh"} {
			var n int
			if n, err = io.WriteString(w, piece); err != nil {
				assert.Less(t, n, len(piece))
				written += n
				break
			}
			assert.Equal(t, len(piece), n)
			written += n
		}
		require.ErrorIs(t, err, outputs.ErrLimit, most)
		assert.ErrorContains(t, err, fmt.Sprintf("more than %d bytes", most))
		assert.Equal(t, "abcdefgh"[:written], got.String(), most)
		assert.Equal(t, int(most), written)
		_, err = io.WriteString(w, "x")
		assert.ErrorIs(t, err, outputs.ErrLimit, most)
		assert.Len(t, got.String(), written)
	}
	all := outputs.Limit(io.Discard, 3)
	_, err := io.WriteString(all, "abc")
	assert.NoError(t, err, "exactly the limit")

	full := errors.New("disk full")
	n, err := outputs.Limit(&shortWriter{remaining: 2, err: full}, 5).Write([]byte("abc"))
	assert.Equal(t, 2, n)
	assert.ErrorIs(t, err, full)
	n, err = outputs.Limit(&shortWriter{remaining: 2}, 2).Write([]byte("abc"))
	assert.Equal(t, 2, n)
	assert.ErrorIs(t, err, outputs.ErrLimit)
	n, err = outputs.Limit(&shortWriter{remaining: 1}, 2).Write([]byte("abc"))
	assert.Equal(t, 1, n)
	assert.ErrorIs(t, err, io.ErrShortWrite)
}

// TestInvalid: writes fail with an error that names the invalid argument.
func TestInvalid(t *testing.T) {
	t.Parallel()
	for want, w := range map[string]io.Writer{
		"a limit of -1 bytes is negative": outputs.Limit(io.Discard, -1),
		"the writer is nil":               outputs.Limit(nil, 3),
		": the writer is nil":             outputs.NewLines(nil).Prefix("> "),
		"outputs: invalid argument: the ": new(outputs.Lines).Prefix("> "),
	} {
		n, err := io.WriteString(w, "abc\n")
		require.ErrorIs(t, err, fs.ErrInvalid)
		assert.ErrorContains(t, err, want)
		assert.Zero(t, n)
	}
}

type yieldingBuilder struct{ strings.Builder }

func (y *yieldingBuilder) Write(p []byte) (int, error) {
	runtime.Gosched()
	return y.Builder.Write(p)
}

// TestShared: several goroutines write to a limit or a tail.
func TestShared(t *testing.T) {
	t.Parallel()
	var got yieldingBuilder
	var tail outputs.Tail
	w := outputs.Limit(&got, 1000)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 400 {
				_, _ = io.WriteString(w, "x")
				_, _ = io.WriteString(&tail, "x")
				_, _ = tail.String(), tail.Total()
			}
		})
	}
	all.Wait()
	assert.Equal(t, 1000, got.Len())
	assert.Len(t, tail.String(), 1600)
}

func TestLines(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 64<<10)
	for _, test := range []struct{ name, text, want string }{
		{"nothing", "", ""},
		{"one", "a\n", "> a\n"},
		{"unfinished", "a\nb", "> a\n> b\n"},
		{"empty lines", "\n\na\n\n", "> \n> \n> a\n> \n"},
		{"carriage return", "a\r\n", "> a\r\n"},
		{"longest", long + "\na\n", "> " + long + "\n> a\n"},
		{"longest, unfinished", long, "> " + long + "\n"},
		{"too long", long + "y\na\n", "> " + long + "\n> y\n> a\n"},
		{"much too long", long + long + "y", "> " + long + "\n> " + long + "\n> y\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(20) {
				var got strings.Builder
				w := outputs.NewLines(&got).Prefix("> ")
				writeInPieces(t, w, rand.New(rand.NewPCG(seed, 0)), test.text)
				require.NoError(t, w.Close())
				require.NoError(t, w.Close())
				require.True(t, test.want == got.String(), "%.100q", got.String()) // too long to print
				_, err := io.WriteString(w, "x")
				require.ErrorIs(t, err, fs.ErrClosed)
				require.ErrorContains(t, err, "outputs: ")
			}
		})
	}
}

// TestLinesError: Write does not count bytes that could not be written.
func TestLinesError(t *testing.T) {
	t.Parallel()
	full := errors.New("disk full")
	for _, err := range []error{full, io.ErrShortWrite} {
		under := &shortWriter{remaining: 6}
		if err == full {
			under.err = full
		}
		n, got := outputs.NewLines(under).Prefix("> ").Write([]byte("a\nb\nc\n"))
		assert.Equal(t, 2, n)
		assert.ErrorIs(t, got, err)
	}
}

// TestLinesStayWhole: concurrent writers don't mix their lines, and the lines of each
// writer keep their order.
func TestLinesStayWhole(t *testing.T) {
	t.Parallel()
	const writers, each = 8, 200
	var got strings.Builder
	lines := outputs.NewLines(&got)
	var all sync.WaitGroup
	for i := range writers {
		all.Go(func() {
			w := lines.Prefix(fmt.Sprintf("%d ", i))
			r := rand.New(rand.NewPCG(uint64(i), 0))
			var text strings.Builder
			for n := range each {
				fmt.Fprintf(&text, "line %d of %d\n", n, i)
			}
			for rest := text.String(); rest != ""; {
				n := min(len(rest), 1+r.IntN(9))
				_, _ = io.WriteString(w, rest[:n])
				rest = rest[n:]
			}
			assert.NoError(t, w.Close())
		})
	}
	all.Wait()
	next := [writers]int{}
	for line := range strings.Lines(got.String()) {
		var by, n, of int
		_, err := fmt.Sscanf(line, "%d line %d of %d\n", &by, &n, &of)
		require.NoError(t, err, line)
		require.Equal(t, by, of)
		require.Equal(t, next[by], n)
		next[by]++
	}
	for _, n := range next {
		assert.Equal(t, each, n)
	}
}
