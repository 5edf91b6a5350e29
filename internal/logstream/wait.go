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
	// waitTimeout limits one request that waits for a command's end. The platform cuts
	// requests that last for minutes, and an edge may lose one.
	waitTimeout = time.Minute
	// lookTimeout limits a request that does not wait for the end.
	lookTimeout = 10 * time.Second
	// The pause between lookups of an unknown command doubles from minFindPause to
	// maxFindPause. A random time up to the same length is added.
	minFindPause, maxFindPause = 100 * time.Millisecond, 2500 * time.Millisecond
	// findTimeout limits the search for an unknown command.
	findTimeout = 45 * time.Second
	// minWaitInterval is the minimum time between the starts of two requests that wait.
	minWaitInterval = 500 * time.Millisecond
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
			a.progressed()
		case judge(err) == final:
			return nil, err
		default:
			if lasted >= longLived {
				a.progressed()
			}
			if a.exhausted(err) {
				return nil, err
			}
			if !a.pause(ctx) {
				return nil, api.ContextError(ctx)
			}
		}
		if time.Since(start) < minWaitInterval && !api.Sleep(ctx, minWaitInterval) {
			return nil, api.ContextError(ctx)
		}
	}
}

// waitOnce waits for the command's end with one request. If there is no response, it sends one
// that does not wait, to distinguish a running command from an unreachable API. It also
// returns how long the request was connected.
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
			reset(time.Now(), time.AfterFunc(waitTimeout, func() { cancel(errNoResponse) }))
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

// Find looks for a command whose start received no response, within ctx, the limits of a
// repair and findTimeout. It returns nil if the command remains unknown. "Not found" counts
// only if the lookup was sent after patience, because the start may still be in flight. A
// lookup that did not reach the API does not count.
func Find(ctx context.Context, cmd Command, patience time.Duration) *wire.Command {
	ctx, cancel := context.WithTimeout(ctx, findTimeout)
	defer cancel()
	a := newAttempts(cmd.Limits)
	start := time.Now()
	for pause := minFindPause; ; {
		sentAfter := time.Since(start)
		found, err := cmd.lookWithin(ctx)
		f, _ := err.(*api.Failure)
		switch {
		case err == nil:
			return found
		case ctx.Err() != nil, f != nil && f.Refused():
			return nil
		case f != nil && !f.Kind.Passing():
			if sentAfter >= patience {
				return nil
			}
			a.progressed()
			if !api.Sleep(ctx, min(pause, max(0, patience-time.Since(start)))) {
				return nil
			}
		case a.exhausted(err) && sentAfter >= patience, !api.Sleep(ctx, time.Duration(float64(pause)*(1+rand.Float64()))):
			return nil
		}
		pause = min(2*pause, maxFindPause)
	}
}

// lookWithin is Look without waiting for the end, limited by lookTimeout.
func (c *Command) lookWithin(ctx context.Context) (*wire.Command, error) {
	limited, cancel := context.WithTimeoutCause(ctx, lookTimeout, errNoResponse)
	defer cancel()
	return c.Look(limited, false)
}
