package logstream

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http/httptrace"
	"sync"
	"time"

	"github.com/go-vercel/sandbox/internal/api"
	"github.com/go-vercel/sandbox/internal/wire"
)

const (
	// waitLimit is how long one request waits for a command's end: the platform
	// cuts requests that last for minutes, and an edge may lose one altogether.
	waitLimit = time.Minute
	// lookLimit is how long a request that does not wait for the end may take.
	lookLimit = 10 * time.Second
	// findPause is the first pause between two requests for a command that is
	// not known; it doubles, up to findMaxPause, to which up to as much is added
	// at random.
	findPause, findMaxPause = 100 * time.Millisecond, 2500 * time.Millisecond
	// findLimit is how long a command that is not known is looked for in all.
	findLimit = 45 * time.Second
	// waitPause is the minimum time between two requests that wait.
	waitPause = 500 * time.Millisecond
)

var errNoResponse = errors.New("no response within a minute")

// Wait waits for the command to end, within ctx and the limits of a repair.
func Wait(ctx context.Context, cmd Command) (*wire.Command, error) {
	a := newAttempts(cmd.Limits)
	for {
		start := time.Now()
		data, lasted, err := cmd.waitOnce(ctx)
		switch {
		case ctx.Err() != nil:
			if err == nil && data.ExitCode != nil {
				return data, nil
			}
			return nil, api.ContextError(ctx)
		case err == nil && data.ExitCode != nil:
			return data, nil
		case err == nil:
			a.gained()
		case judge(err) == final:
			return nil, err
		default:
			if lasted >= longLived {
				a.gained()
			}
			if a.exhausted(err) {
				return nil, err
			}
			if !a.pause(ctx) {
				return nil, api.ContextError(ctx)
			}
		}
		if time.Since(start) < waitPause && !api.Sleep(ctx, waitPause) {
			return nil, api.ContextError(ctx)
		}
	}
}

// waitOnce waits for the command's end with one request. If that gets no
// response, a request that does not wait follows: its response distinguishes a
// running command from an unreachable API. waitOnce also returns how long the
// connection had carried the request.
func (c *Command) waitOnce(ctx context.Context) (*wire.Command, time.Duration, error) {
	limited, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var (
		mu        sync.Mutex
		connected time.Time
		timer     *time.Timer
	)
	reset := func(at time.Time, t *time.Timer) {
		mu.Lock()
		defer mu.Unlock()
		if timer != nil {
			timer.Stop()
		}
		connected, timer = at, t
	}
	traced := httptrace.WithClientTrace(limited, &httptrace.ClientTrace{
		GetConn: func(string) { reset(time.Time{}, nil) },
		GotConn: func(httptrace.GotConnInfo) {
			reset(time.Now(), time.AfterFunc(waitLimit, func() { cancel(errNoResponse) }))
		},
	})
	data, err := c.Look(traced, true)
	mu.Lock()
	at := connected
	mu.Unlock()
	reset(at, nil)
	var lasted time.Duration
	if !at.IsZero() {
		lasted = time.Since(at)
	}
	if err != nil && context.Cause(limited) == errNoResponse {
		data, err = c.lookWithin(ctx)
		return data, 0, err
	}
	return data, lasted, err
}

// Find looks for a command whose start received no response, within ctx, the
// limits of a repair and findLimit. A response that there is no such command proves little at
// first, since the start may still be on its way: it counts if the request for
// it was sent after patience. A request that did not reach the API does not
// count. Find returns nil if the command remains unknown.
func Find(ctx context.Context, cmd Command, patience time.Duration) *wire.Command {
	ctx, cancel := context.WithTimeout(ctx, findLimit)
	defer cancel()
	a := newAttempts(cmd.Limits)
	begin := time.Now()
	for pause := findPause; ; {
		asked := time.Since(begin)
		found, err := cmd.lookWithin(ctx)
		f, _ := err.(*api.Failure)
		switch {
		case err == nil:
			return found
		case ctx.Err() != nil, f != nil && f.Refused():
			return nil
		case f != nil && !f.Kind.Passing():
			if asked >= patience {
				return nil
			}
			a.gained()
			if !api.Sleep(ctx, min(pause, max(0, patience-time.Since(begin)))) {
				return nil
			}
		case a.exhausted(err) && asked >= patience, !api.Sleep(ctx, time.Duration(float64(pause)*(1+rand.Float64()))):
			return nil
		}
		pause = min(2*pause, findMaxPause)
	}
}

// lookWithin is Look without waiting for the end of the command, for at most
// lookLimit.
func (c *Command) lookWithin(ctx context.Context) (*wire.Command, error) {
	limited, cancel := context.WithTimeoutCause(ctx, lookLimit, errNoResponse)
	defer cancel()
	return c.Look(limited, false)
}
