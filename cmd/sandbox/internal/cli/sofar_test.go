package cli

import (
	"context"
	"iter"
	"net/http/httptrace"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox"
)

// writing returns the output of a command that writes pieces of a size, with a pause before
// each, and then nothing.
func writing(pieces, size int, pause time.Duration) func(context.Context) iter.Seq2[sandbox.LogEntry, error] {
	return func(ctx context.Context) iter.Seq2[sandbox.LogEntry, error] {
		return func(yield func(sandbox.LogEntry, error) bool) {
			httptrace.ContextClientTrace(ctx).GotFirstResponseByte()
			for range pieces {
				select {
				case <-time.After(pause):
				case <-ctx.Done():
					yield(sandbox.LogEntry{}, ctx.Err())
					return
				}
				if !yield(sandbox.LogEntry{Data: strings.Repeat("x", size)}, nil) {
					return
				}
			}
			<-ctx.Done()
			yield(sandbox.LogEntry{}, ctx.Err())
		}
	}
}

// TestSoFar: the output so far is complete, and its end is found although the command
// continues, whether it is silent or not.
func TestSoFar(t *testing.T) {
	const forever = 1 << 30
	for name, c := range map[string]struct {
		pieces, size int
		pause        time.Duration
		reader       time.Duration // how long the reader needs for each piece
		atLeast      int           // pieces
		within       time.Duration
	}{
		"silent at once":           {0, 0, 0, 0, 0, time.Second},
		"silent after its output":  {100, 64 << 10, 90 * time.Millisecond, 0, 100, 10 * time.Second},
		"over a slow line":         {20, 64 << 10, 400 * time.Millisecond, 0, 20, 9 * time.Second},
		"to a reader that pauses":  {50, 64, time.Millisecond, time.Hour, 50, 51 * time.Hour},
		"a line now and then":      {forever, 20, 400 * time.Millisecond, 0, 1, 2 * time.Second},
		"a line all the time":      {forever, 20, 5 * time.Millisecond, 0, 100, 2 * time.Second},
		"as fast as it can":        {forever, 64 << 10, 10 * time.Millisecond, 0, 900, 11 * time.Second},
		"both fast and never read": {forever, 64 << 10, 10 * time.Millisecond, time.Minute, 900, 1100 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start, n := time.Now(), 0
				for _, err := range soFar(t.Context(), writing(c.pieces, c.size, c.pause)) {
					require.NoError(t, err)
					n++
					time.Sleep(c.reader)
				}
				assert.GreaterOrEqual(t, n, c.atLeast)
				assert.LessOrEqual(t, time.Since(start), c.within)
			})
		})
	}
	t.Run("no response", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var last error
			for _, err := range soFar(t.Context(), func(ctx context.Context) iter.Seq2[sandbox.LogEntry, error] {
				return func(yield func(sandbox.LogEntry, error) bool) {
					<-ctx.Done()
					yield(sandbox.LogEntry{}, ctx.Err())
				}
			}) {
				last = err
			}
			require.ErrorContains(t, last, "has not responded")
		})
	})
	t.Run("given up by the user", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			var last error
			for _, err := range soFar(ctx, writing(0, 0, 0)) {
				last = err
			}
			require.ErrorIs(t, last, context.DeadlineExceeded, "a timeout is not the end of the output")
		})
	})
}
