package engine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/go-vercel/sandbox/internal/wire"
)

const (
	// cancelGrace is how long to wait for the end of a canceled command.
	cancelGrace = 30 * time.Second
	// KillTimeout limits the request to kill a command, and then the wait for its end.
	KillTimeout = 5 * time.Second
)

// Run is a started command with its input and output. Supervise waits for its end. The
// functions in its fields make the requests.
type Run struct {
	// Ctx is the caller's context. Its end cancels the command.
	Ctx context.Context
	// Live is the context of all requests. Abandon cancels it.
	Live    context.Context
	Abandon context.CancelFunc

	// Copy copies the output until the command has ended.
	Copy func(ctx context.Context) Copied
	// Feed delivers the input; nil means none. An error other than *InputError comes from
	// the reader.
	Feed func(ctx context.Context) error
	// End waits for the command to end, independently of its output.
	End func(ctx context.Context) (*wire.Command, error)
	// Kill kills the command with its children. Supervise waits for it.
	Kill func(ctx context.Context) error
	// Cancel, if not nil, is called when Ctx ends.
	Cancel func() error
	// Silent reports whether an error of Cancel means that the API does not respond.
	Silent func(error) bool
	// Alone matches an error of Cancel that means that only the process was signaled, not
	// its children.
	Alone error

	// OnEnd is called with the ended command as soon as the end is known, or with nil if
	// it will not be known.
	OnEnd func(*wire.Command)
	// OnOutput is called when the output has been copied, and CloseOutput when Supervise
	// stops waiting for it. CloseInput ends a pending read of the input, if possible.
	OnOutput, CloseOutput, CloseInput func()

	// WaitDelay is like that of exec.Cmd.
	WaitDelay time.Duration
	// Waiting is closed when the caller starts to wait for the command to end. WaitDelay
	// does not start before that, unless Ctx ends. Waiting is nil if the caller already
	// waits, or if the output always has a reader.
	Waiting <-chan struct{}
}

// Copied is the result of copying the output.
type Copied struct {
	End *wire.Command // the ended command; nil if unknown
	// Stream is an error of the stream, Writer an error of a writer.
	Stream, Writer error
}

// InputError is the error of an input that was not delivered completely.
type InputError struct{ Err error }

func (e *InputError) Error() string { return e.Err.Error() }
func (e *InputError) Unwrap() error { return e.Err }

// Result is the result of a run.
type Result struct {
	Copied
	// Input is the error of Feed.
	Input error
	// Called reports whether Cancel was called, and Canceled is its error.
	Called   bool
	Canceled error
	// Killed is the error of Kill.
	Killed error
	// Overrun is set if WaitDelay has passed.
	Overrun bool
}

// supervisor is the state of a run. Only the loop of Supervise calls its methods.
type supervisor struct {
	*Run
	res Result

	// The events; nil if an event can no longer happen.
	copying   chan Copied
	fed       chan error
	waiting   <-chan struct{}
	ended     chan *wire.Command
	ctxDone   <-chan struct{}
	cancelled chan error
	timer     <-chan time.Time

	stopFeeding context.CancelFunc
	// waitsForEnd is set once End was called.
	known, killed, waitsForEnd bool
	kills                      chan error
	killing                    int // number of calls of Kill
}

// Supervise waits until the command has ended, its output is copied, and its input is
// delivered. It abandons what does not end in time.
func (r *Run) Supervise() Result {
	s := &supervisor{Run: r}
	s.start()
	defer s.Abandon()
	defer s.stopFeeding()
	for s.copying != nil || s.fed != nil {
		select {
		case res := <-s.copying:
			s.onCopied(res)
		case err := <-s.fed:
			s.onFed(err)
		case <-s.waiting:
			s.onWaiting()
		case end := <-s.ended:
			s.onEnded(end)
		case <-s.ctxDone:
			s.onContext()
		case err := <-s.cancelled:
			s.onCancelled(err)
		case <-s.timer:
			s.onTimer()
		}
	}
	if s.cancelled != nil {
		s.res.Called, s.res.Canceled = true, <-s.cancelled
	}
	s.waitKills()
	if s.Live.Err() != nil {
		s.res.Stream = nil // Abandon caused it
	}
	return s.res
}

func (s *supervisor) start() {
	var feeding context.Context
	feeding, s.stopFeeding = context.WithCancel(s.Live)
	if s.Feed != nil {
		fed := make(chan error, 1)
		s.fed = fed
		go func() { fed <- s.Feed(feeding) }()
	}
	copying := make(chan Copied, 1)
	s.copying = copying
	go func() { copying <- s.Copy(s.Live) }()
	s.waiting = s.Waiting
	if s.waiting == nil && s.WaitDelay > 0 { // WaitDelay starts at the end of the command, which the output may outlive
		now := make(chan struct{})
		close(now)
		s.waiting = now
	}
	s.ended, s.kills = make(chan *wire.Command, 1), make(chan error)
	if s.Cancel != nil || s.WaitDelay > 0 {
		s.ctxDone = s.Ctx.Done()
	}
}

// onCopied handles the end of the output.
func (s *supervisor) onCopied(res Copied) {
	s.copying = nil
	s.res.Copied = res
	s.recordEnd(res.End)
	s.OnOutput()
	s.stopFeeding() // the command reads no more input
	s.CloseInput()
	if s.res.Overrun || s.Ctx.Err() != nil {
		s.fed = nil // a reader can't be interrupted
	} else if s.waiting == nil {
		s.startTimer(s.WaitDelay)
	}
}

// onFed handles the end of the input.
func (s *supervisor) onFed(err error) {
	s.fed, s.res.Input = nil, err
	if _, lost := errors.AsType[*InputError](err); lost && s.copying != nil {
		s.kill() // the command would wait forever for the rest
	}
}

// onWaiting handles the caller's wait for the end of the command.
func (s *supervisor) onWaiting() {
	s.waiting = nil
	if s.copying == nil {
		s.startTimer(s.WaitDelay)
		return
	}
	s.waitForEnd()
}

// waitForEnd calls End once, in a goroutine.
func (s *supervisor) waitForEnd() {
	if s.waitsForEnd {
		return
	}
	s.waitsForEnd = true
	go func() {
		// If this fails, the end of the output shows how the command ended.
		if data, err := s.End(s.Live); err == nil {
			s.ended <- data
		}
	}()
}

// onEnded handles the end of the command. Its output may continue.
func (s *supervisor) onEnded(end *wire.Command) {
	s.recordEnd(end)
	s.startTimer(s.WaitDelay)
	if s.killed {
		s.Abandon()
	}
}

// onContext handles the end of Ctx.
func (s *supervisor) onContext() {
	s.ctxDone = nil
	if s.copying == nil {
		s.fed = nil
		return
	}
	if s.WaitDelay > 0 {
		s.startTimer(s.WaitDelay)
		s.waitForEnd()
	} else {
		s.startTimer(cancelGrace)
	}
	if s.Cancel != nil {
		cancelled := make(chan error, 1)
		s.cancelled = cancelled
		go func() { cancelled <- s.Cancel() }()
	}
}

// onCancelled handles the return of Cancel.
func (s *supervisor) onCancelled(err error) {
	s.cancelled = nil
	s.res.Called, s.res.Canceled = true, err
	if s.Silent(err) && s.WaitDelay == 0 {
		s.Abandon() // the API would not report the end either
	}
}

// onTimer handles the timeout. It kills a command that ignores Cancel, and abandons one that
// does not end after the kill.
func (s *supervisor) onTimer() {
	s.timer, s.res.Overrun = nil, true
	s.CloseOutput()
	switch {
	case s.copying == nil:
		s.fed = nil
	case s.known || s.killed:
		s.Abandon()
	default:
		s.killed = true
		s.kill()
		s.startTimer(KillTimeout)
	}
}

// recordEnd records the ended command; nil means unknown.
func (s *supervisor) recordEnd(data *wire.Command) {
	s.known = s.known || data != nil && data.ExitCode != nil
	s.OnEnd(data)
}

// startTimer starts the timer unless it is running.
func (s *supervisor) startTimer(d time.Duration) {
	if s.timer == nil && d > 0 {
		s.timer = time.After(d)
	}
}

func (s *supervisor) kill() {
	s.killing++
	go func() { s.kills <- s.Kill(s.Live) }()
}

// waitKills waits for the calls of Kill. There may be two, after lost input and after the
// timeout.
func (s *supervisor) waitKills() {
	for n := range s.killing {
		if err := <-s.kills; n == 0 || err == nil {
			s.res.Killed = err
		}
	}
}

// Cancellation returns the error of a run whose context has ended. wrap describes an error of
// Cancel. The error is nil if the command had already ended.
func (r *Run) Cancellation(res Result, wrap func(error) error) error {
	switch err := res.Canceled; {
	case !res.Called:
		return nil
	case err == nil:
		return r.Ctx.Err()
	case errors.Is(err, os.ErrProcessDone):
		return nil
	case r.Silent(err), errors.Is(err, r.Alone):
		return fmt.Errorf("%w; %w", r.Ctx.Err(), wrap(err))
	default:
		return wrap(err)
	}
}
