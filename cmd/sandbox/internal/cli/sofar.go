package cli

import (
	"context"
	"fmt"
	"iter"
	"net/http/httptrace"
	"sync/atomic"
	"time"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/screen"
)

// The API does not say how much output a running command has: it sends all there is, and
// then each new piece. The output so far has been read when the command is silent, or when
// it writes no faster than it did while its output was read. For a command that writes as
// fast as it is read, only logMost ends the reading.
const (
	// logPatience is how long to wait for the API to respond.
	logPatience = 10 * time.Second

	logQuiet  = 500 * time.Millisecond
	logWindow = time.Second
	logPace   = 16 << 10 // bytes within a window
	logMost   = 10 * time.Second
)

// soFar ends the output of a running command where the output so far ends. It counts only
// the time spent waiting for output, not the time of the reader.
func soFar(ctx context.Context, logs func(context.Context) iter.Seq2[sandbox.LogEntry, error]) iter.Seq2[sandbox.LogEntry, error] {
	return func(yield func(sandbox.LogEntry, error) bool) {
		live, cancel := context.WithCancel(ctx)
		defer cancel()
		var responds atomic.Bool
		quiet := time.AfterFunc(logPatience, cancel)
		defer quiet.Stop()
		trace := &httptrace.ClientTrace{GotFirstResponseByte: func() {
			responds.Store(true)
			quiet.Reset(logQuiet)
		}}
		var waited, window time.Duration
		bytes := 0
		since := time.Now()
		for e, err := range logs(httptrace.WithClientTrace(live, trace)) {
			quiet.Stop()
			if err != nil {
				switch {
				case live.Err() == nil || ctx.Err() != nil:
					yield(e, err)
				case !responds.Load():
					yield(e, &screen.ExitError{Code: screen.ExitTimeout, Err: screen.WithHint(
						fmt.Errorf("the API has not responded within %v", logPatience), "--follow waits for it")})
				}
				return
			}
			waited += time.Since(since)
			window += time.Since(since)
			bytes += len(e.Data)
			if !yield(e, nil) || waited >= logMost || window >= logWindow && bytes < logPace {
				return
			}
			if window >= logWindow {
				window, bytes = 0, 0
			}
			since = time.Now()
			quiet.Reset(logQuiet)
		}
	}
}
