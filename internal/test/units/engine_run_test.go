package units_test

import (
	"context"
	"errors"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/go-vercel/sandbox/internal/engine"
	"github.com/go-vercel/sandbox/internal/wire"
)

var (
	errFull   = errors.New("disk full")
	errSilent = errors.New("no response")
)

// scriptedRun is a command for which a test determines what happens at which time.
type scriptedRun struct {
	run    engine.Run
	cancel context.CancelFunc

	// exit and output are the times when the command and its output end. The output ends
	// sooner if the run abandons it.
	exit, output time.Duration
	code         int
	unreported   bool // the output does not report the command's end
	dies         bool // a kill ends the command
	killed       chan struct{}

	at     time.Time
	mu     sync.Mutex
	events map[string]time.Duration // the time of the first call of each function
}

func newScriptedRun() *scriptedRun {
	s := &scriptedRun{events: map[string]time.Duration{}, killed: make(chan struct{}), at: time.Now()}
	note := func(name string) func() {
		return func() { s.note(name) }
	}
	r := &s.run
	r.Ctx, s.cancel = context.WithCancel(context.Background())
	live, abandon := context.WithCancel(context.Background())
	r.Live, r.Abandon = live, func() { s.note("abandon"); abandon() }
	r.Copy = func(ctx context.Context) engine.Copied {
		if !s.sleep(ctx, s.output) {
			return engine.Copied{Stream: ctx.Err()}
		}
		if s.unreported {
			return engine.Copied{Stream: errSilent}
		}
		return engine.Copied{End: s.end()}
	}
	r.End = func(ctx context.Context) (*wire.Command, error) {
		if !s.sleep(ctx, s.exit) {
			return nil, ctx.Err()
		}
		return s.end(), nil
	}
	r.Kill = func(context.Context) error {
		if s.note("kill") && s.dies {
			close(s.killed)
		}
		return nil
	}
	r.Silent = func(err error) bool { return err == errSilent }
	r.OnEnd = func(end *wire.Command) {
		if end != nil {
			s.note("end")
		}
	}
	r.OnOutput, r.CloseOutput, r.CloseInput = note("output"), note("close output"), note("close input")
	return s
}

func (s *scriptedRun) note(name string) (first bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.events[name]; ok {
		return false
	}
	s.events[name] = time.Since(s.at)
	return true
}

// sleep waits until d has passed or the command is killed. It returns false if ctx ends first.
func (s *scriptedRun) sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-s.killed:
		return true
	case <-ctx.Done():
		return false
	}
}

func (s *scriptedRun) end() *wire.Command {
	code := s.code
	return &wire.Command{ExitCode: &code}
}

// TestWatchedRuns runs scripted commands and checks the time of each call and the result.
func TestWatchedRuns(t *testing.T) {
	t.Parallel()
	const hour = time.Hour
	forever := func(ctx context.Context) error { <-ctx.Done(); return nil }
	for name, tc := range map[string]struct {
		setup  func(s *scriptedRun)
		after  time.Duration // the duration of the whole run
		events map[string]time.Duration
		check  func(t *testing.T, s *scriptedRun, res engine.Result)
	}{
		"the run ends when the output ends": {
			setup:  func(s *scriptedRun) { s.exit, s.output, s.code = 2*time.Second, 2*time.Second, 3 },
			after:  2 * time.Second,
			events: map[string]time.Duration{"end": 2 * time.Second, "output": 2 * time.Second},
			check: func(t *testing.T, _ *scriptedRun, res engine.Result) {
				assert.Equal(t, 3, *res.End.ExitCode)
				assert.False(t, res.Called || res.Overrun)
			},
		},
		"delivery of the input stops when the output has ended": {
			setup:  func(s *scriptedRun) { s.run.Feed = forever },
			events: map[string]time.Duration{"end": 0, "close input": 0},
		},
		"the run waits for an input's Read that does not return": {
			setup: func(s *scriptedRun) {
				s.run.Feed = func(context.Context) error { time.Sleep(hour); return errFull }
			},
			after: hour,
			check: func(t *testing.T, _ *scriptedRun, res engine.Result) { assert.Equal(t, errFull, res.Input) },
		},
		"the run waits for a Read at most WaitDelay after the output": {
			setup: func(s *scriptedRun) {
				s.run.WaitDelay = time.Second
				s.run.Feed = func(context.Context) error { time.Sleep(hour); return nil }
			},
			after: time.Second,
			check: func(t *testing.T, _ *scriptedRun, res engine.Result) { assert.True(t, res.Overrun) },
		},
		"the run does not wait for a Read after the end of the context": {
			setup: func(s *scriptedRun) {
				s.exit, s.output, s.dies = hour, hour, true
				s.run.Feed = func(context.Context) error { time.Sleep(hour); return nil }
				s.run.Cancel = func() error { return s.run.Kill(nil) }
				time.AfterFunc(time.Second, s.cancel)
			},
			after:  time.Second,
			events: map[string]time.Duration{"kill": time.Second},
		},
		"input that can't be delivered kills the command": {
			setup: func(s *scriptedRun) {
				s.exit, s.output, s.dies = hour, hour, true
				s.run.Feed = func(context.Context) error { return &engine.InputError{Err: errFull} }
			},
			events: map[string]time.Duration{"kill": 0},
			check:  func(t *testing.T, _ *scriptedRun, res engine.Result) { assert.ErrorIs(t, res.Input, errFull) },
		},
		"an error of the input's Read does not kill the command": {
			setup: func(s *scriptedRun) {
				s.exit, s.output = hour, hour
				s.run.Feed = func(context.Context) error { return errFull }
			},
			after:  hour,
			events: map[string]time.Duration{"kill": -1},
		},
		"the end is reported although the output continues": {
			setup: func(s *scriptedRun) {
				s.exit, s.output = time.Second, hour
				waiting := make(chan struct{})
				close(waiting)
				s.run.Waiting = waiting
			},
			after:  hour,
			events: map[string]time.Duration{"end": time.Second, "output": hour, "abandon": hour},
		},
		"the output is abandoned after WaitDelay if children keep it open": {
			setup:  func(s *scriptedRun) { s.exit, s.output, s.run.WaitDelay = time.Second, hour, 2*time.Second },
			after:  3 * time.Second,
			events: map[string]time.Duration{"end": time.Second, "close output": 3 * time.Second, "abandon": 3 * time.Second, "kill": -1},
			check: func(t *testing.T, _ *scriptedRun, res engine.Result) {
				assert.True(t, res.Overrun)
				assert.NoError(t, res.Stream)
			},
		},
		"WaitDelay begins when the caller waits": {
			setup: func(s *scriptedRun) {
				s.exit, s.output, s.run.WaitDelay = time.Second, hour, 2*time.Second
				waiting := make(chan struct{})
				s.run.Waiting = waiting
				time.AfterFunc(30*time.Minute, func() { close(waiting) })
			},
			after:  30*time.Minute + 3*time.Second,
			events: map[string]time.Duration{"close output": 30*time.Minute + 3*time.Second},
			check:  func(t *testing.T, _ *scriptedRun, res engine.Result) { assert.True(t, res.Overrun) },
		},
		"WaitDelay begins when the caller waits, for a Read that does not return": {
			setup: func(s *scriptedRun) {
				s.run.WaitDelay = time.Second
				s.run.Feed = func(context.Context) error { time.Sleep(hour); return nil }
				waiting := make(chan struct{})
				s.run.Waiting = waiting
				time.AfterFunc(30*time.Minute, func() { close(waiting) })
			},
			after: 30*time.Minute + time.Second,
			check: func(t *testing.T, _ *scriptedRun, res engine.Result) { assert.True(t, res.Overrun) },
		},
		"the end of the context calls Cancel": {
			setup: func(s *scriptedRun) {
				s.exit, s.output, s.dies = hour, hour, true
				s.run.Cancel = func() error { return s.run.Kill(nil) }
				time.AfterFunc(time.Second, s.cancel)
			},
			after:  time.Second,
			events: map[string]time.Duration{"kill": time.Second},
			check: func(t *testing.T, s *scriptedRun, res engine.Result) {
				assert.Equal(t, context.Canceled, s.run.Cancellation(res, func(err error) error { return err }))
			},
		},
		"a command that ignores Cancel is killed, and abandoned if it does not die": {
			setup: func(s *scriptedRun) {
				s.exit, s.output = hour, hour
				s.run.Cancel = func() error { return nil }
				s.cancel()
			},
			after:  35 * time.Second,
			events: map[string]time.Duration{"kill": 30 * time.Second, "close output": 30 * time.Second, "abandon": 35 * time.Second},
		},
		"a kill ends a command that ignores Cancel": {
			setup: func(s *scriptedRun) {
				s.exit, s.output, s.dies, s.run.WaitDelay = hour, hour, true, time.Second
				s.run.Cancel = func() error { return nil }
				s.cancel()
			},
			after:  time.Second,
			events: map[string]time.Duration{"kill": time.Second, "end": time.Second},
		},
		"the output of a killed command is abandoned if children keep it open": {
			setup: func(s *scriptedRun) {
				s.exit, s.dies, s.run.WaitDelay = hour, true, time.Second
				s.run.Copy = func(ctx context.Context) engine.Copied { <-ctx.Done(); return engine.Copied{Stream: ctx.Err()} }
				s.cancel()
			},
			after:  time.Second,
			events: map[string]time.Duration{"kill": time.Second, "end": time.Second, "abandon": time.Second},
			check:  func(t *testing.T, _ *scriptedRun, res engine.Result) { assert.NoError(t, res.Stream) },
		},
		"the output of a killed command is abandoned before the caller waits": {
			setup: func(s *scriptedRun) {
				s.exit, s.dies, s.run.WaitDelay, s.run.Waiting = hour, true, time.Second, make(chan struct{})
				s.run.Copy = func(ctx context.Context) engine.Copied { <-ctx.Done(); return engine.Copied{Stream: ctx.Err()} }
				s.run.Cancel = func() error { return nil }
				s.cancel()
			},
			after:  time.Second,
			events: map[string]time.Duration{"kill": time.Second, "end": time.Second, "abandon": time.Second},
		},
		"the run ends if the API does not respond to Cancel": {
			setup: func(s *scriptedRun) {
				s.exit, s.output = hour, hour
				s.run.Cancel = func() error { time.Sleep(5 * time.Second); return errSilent }
				s.cancel()
			},
			after:  5 * time.Second,
			events: map[string]time.Duration{"abandon": 5 * time.Second, "kill": -1},
			check: func(t *testing.T, s *scriptedRun, res engine.Result) {
				err := s.run.Cancellation(res, func(err error) error { return err })
				assert.ErrorIs(t, err, errSilent)
				assert.ErrorIs(t, err, context.Canceled)
			},
		},
		"with WaitDelay, the run continues if the API does not respond to Cancel": {
			setup: func(s *scriptedRun) {
				s.exit, s.output, s.run.WaitDelay = 7*time.Second, 7*time.Second, 10*time.Second
				s.run.Cancel = func() error { time.Sleep(5 * time.Second); return errSilent }
				s.cancel()
			},
			after: 7 * time.Second,
		},
		"Cancel of an ended command has no effect": {
			setup: func(s *scriptedRun) {
				s.exit, s.output = time.Second, time.Second
				s.run.Cancel = func() error { return os.ErrProcessDone }
				s.cancel()
			},
			after: time.Second,
			check: func(t *testing.T, s *scriptedRun, res engine.Result) {
				assert.True(t, res.Called)
				assert.NoError(t, s.run.Cancellation(res, func(err error) error { return err }))
			},
		},
		"the run waits until Cancel has returned": {
			setup: func(s *scriptedRun) {
				s.run.Cancel = func() error { time.Sleep(2 * time.Second); return errFull }
				s.exit, s.output = time.Second, time.Second
				s.cancel()
			},
			after: 2 * time.Second,
			check: func(t *testing.T, _ *scriptedRun, res engine.Result) { assert.Equal(t, errFull, res.Canceled) },
		},
		"without Cancel and WaitDelay, the end of the context has no effect": {
			setup:  func(s *scriptedRun) { s.exit, s.output = hour, hour; s.cancel() },
			after:  hour,
			events: map[string]time.Duration{"kill": -1, "close output": -1},
		},
		"the output is lost": {
			setup: func(s *scriptedRun) { s.output, s.unreported = time.Second, true },
			after: time.Second,
			check: func(t *testing.T, _ *scriptedRun, res engine.Result) { assert.Equal(t, errSilent, res.Stream) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newScriptedRun()
				defer s.cancel()
				tc.setup(s)
				res := s.run.Supervise()
				assert.Equal(t, tc.after, time.Since(s.at))
				for event, at := range tc.events {
					got, ok := s.events[event]
					if at < 0 {
						assert.False(t, ok, event)
					} else {
						assert.True(t, ok, event)
						assert.Equal(t, at, got, event)
					}
				}
				if tc.check != nil {
					tc.check(t, s, res)
				}
				time.Sleep(2 * hour) // until everything has ended that the run did not wait for
			})
		})
	}
}

// TestSignalsWithoutReader: a command that continues to write after nothing reads its output gets
// stronger signals over time.
func TestSignalsWithoutReader(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		got := map[int]time.Duration{}
		u := &engine.Unread{Signal: func(sig int) { got[sig] = time.Since(begin) }}
		for range 100 {
			u.Output()
			u.Wait()
			time.Sleep(100 * time.Millisecond)
		}
		assert.Equal(t, map[int]time.Duration{13: 0, 15: time.Second, 9: 5 * time.Second}, got)
	})
}
