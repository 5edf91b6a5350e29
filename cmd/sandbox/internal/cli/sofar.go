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

// The API does not say how much output a running command has. It sends the output so far,
// and then each new piece. So soFar has to guess where the output so far ends: when the
// command is silent for logQuiet, or when less than logPace arrives within logWindow. For a
// command that writes faster, soFar stops after logMost.
const (
	// logPatience is how long to wait for the API to respond.
	logPatience = 10 * time.Second

	logQuiet  = 500 * time.Millisecond
	logWindow = time.Second
	logPace   = 16 << 10 // bytes within a window
	logMost   = 10 * time.Second
)

// soFar returns what a running command has written so far. Its limits count only the time
// that it waits for output, not the time that the caller needs for each entry.
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
