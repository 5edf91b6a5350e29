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
	// cancelGrace is how long a canceled command is waited for.
	cancelGrace = 30 * time.Second
	// KillTimeout is how long the request to kill a command may take, and how
	// long the end of a command that was killed is waited for.
	KillTimeout = 5 * time.Second
)

// Run is a command that has started, with what is copied to and from it.
// Supervise waits for its end. It knows nothing of requests: the functions make
// them.
type Run struct {
	// Ctx is the caller's: its end cancels the command.
	Ctx context.Context
	// Live is the context of all requests, which Abandon ends.
	Live    context.Context
	Abandon context.CancelFunc

	// Copy copies the output until the command has ended.
	Copy func(ctx context.Context) Copied
	// Feed delivers the input; nil for none. An error that is not an
	// *InputError is the reader's.
	Feed func(ctx context.Context) error
	// End waits for the command to end, whatever becomes of its output.
	End func(ctx context.Context) (*wire.Command, error)
	// Kill kills the command with its children. It is waited for.
	Kill func(ctx context.Context) error
	// Cancel is called when Ctx ends; nil does nothing.
	Cancel func() error
	// Silent reports whether an error of Cancel says that the API does not
	// respond.
	Silent func(error) bool
	// Alone matches an error of Cancel that says that the process was reached
	// without its children.
	Alone error

	// OnEnd gets how the command ended, as soon as that is known; nil if it
	// never will be.
	OnEnd func(*wire.Command)
	// OnOutput is called when the output has been copied, and CloseOutput when
	// it is no longer waited for. CloseInput ends a pending read of the input,
	// if that is possible.
	OnOutput, CloseOutput, CloseInput func()

	// WaitDelay is that of exec.Cmd.
	WaitDelay time.Duration
	// Waiting is closed when the caller waits for the command to end, although
	// its output may have no reader. WaitDelay counts from then on at the earliest,
	// unless Ctx ends. Nil if the caller waits already, or if nothing delays the
	// output.
	Waiting <-chan struct{}
}

// Copied is how the copying of the output ended.
type Copied struct {
	End *wire.Command // nil if not known
	// Stream is an error of the stream, Writer one of a writer.
	Stream, Writer error
}

// InputError is the error of an input that was not delivered completely.
type InputError struct{ Err error }

func (e *InputError) Error() string { return e.Err.Error() }
func (e *InputError) Unwrap() error { return e.Err }

// Result is what became of a run.
type Result struct {
	Copied
	// Input is the error of Feed.
	Input error
	// Canceled is what Cancel returned, if it was called.
	Called   bool
	Canceled error
	// Killed is what Kill returned, if it was called.
	Killed error
	// Overrun is set if WaitDelay has passed.
	Overrun bool
}

// supervisor is the state of a run. Its methods are called one at a time, by
// the loop of Supervise.
type supervisor struct {
	*Run
	res Result

	// What may happen; nil for what no longer can.
	copying   chan Copied
	fed       chan error
	waiting   <-chan struct{}
	ended     chan *wire.Command
	ctxDone   <-chan struct{}
	cancelled chan error
	timer     <-chan time.Time

	stopFeeding context.CancelFunc
	// watching is set once the end of the command is asked for.
	known, killed, watching bool
	kills                   chan error
	killing                 int // how many were begun
}

// Supervise waits for the command to end, for its output to be copied and for
// its input to be delivered, and gives up what does not end in time.
func (r *Run) Supervise() Result {
	s := &supervisor{Run: r}
	s.begin()
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
	s.awaitKills()
	if s.Live.Err() != nil {
		s.res.Stream = nil // it was given up
	}
	return s.res
}

func (s *supervisor) begin() {
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
	if s.waiting == nil && s.WaitDelay > 0 { // the end has to be known, also if the output goes on
		now := make(chan struct{})
		close(now)
		s.waiting = now
	}
	s.ended, s.kills = make(chan *wire.Command, 1), make(chan error)
	if s.Cancel != nil || s.WaitDelay > 0 {
		s.ctxDone = s.Ctx.Done()
	}
}

// onCopied: the output has come to its end.
func (s *supervisor) onCopied(res Copied) {
	s.copying = nil
	s.res.Copied = res
	s.end(res.End)
	s.OnOutput()
	s.stopFeeding() // what is not delivered by now never will be
	s.CloseInput()
	if s.res.Overrun || s.Ctx.Err() != nil {
		s.fed = nil // a reader can't be interrupted
	} else if s.waiting == nil {
		s.delay(s.WaitDelay)
	}
}

// onFed: the input has come to its end.
func (s *supervisor) onFed(err error) {
	s.fed, s.res.Input = nil, err
	if _, lost := errors.AsType[*InputError](err); lost && s.copying != nil {
		s.kill() // it would wait forever for the rest
	}
}

// onWaiting: the end of the command is of interest, and not only that of its
// output.
func (s *supervisor) onWaiting() {
	s.waiting = nil
	if s.copying == nil {
		s.delay(s.WaitDelay)
		return
	}
	s.watch()
}

// watch asks for the end of the command, once.
func (s *supervisor) watch() {
	if s.watching {
		return
	}
	s.watching = true
	go func() {
		// If this fails, the end of the output has to show how it ended.
		if data, err := s.End(s.Live); err == nil {
			s.ended <- data
		}
	}()
}

// onEnded: the command has ended, and its output may go on.
func (s *supervisor) onEnded(end *wire.Command) {
	s.end(end)
	s.delay(s.WaitDelay)
	if s.killed {
		s.Abandon()
	}
}

// onContext: the caller gives up.
func (s *supervisor) onContext() {
	s.ctxDone = nil
	if s.copying == nil {
		s.fed = nil
		return
	}
	if s.WaitDelay > 0 {
		s.delay(s.WaitDelay)
		s.watch()
	} else {
		s.delay(cancelGrace)
	}
	if s.Cancel != nil {
		cancelled := make(chan error, 1)
		s.cancelled = cancelled
		go func() { cancelled <- s.Cancel() }()
	}
}

// onCancelled: Cancel has returned.
func (s *supervisor) onCancelled(err error) {
	s.cancelled = nil
	s.res.Called, s.res.Canceled = true, err
	if s.Silent(err) && s.WaitDelay == 0 {
		s.Abandon() // an API that does not respond will not report the end either
	}
}

// onTimer: the time is up. A command that ignores Cancel is killed, and
// abandoned if it does not end even then.
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
		s.delay(KillTimeout)
	}
}

// end records how the command ended; nil means unknown.
func (s *supervisor) end(data *wire.Command) {
	s.known = s.known || data != nil && data.ExitCode != nil
	s.OnEnd(data)
}

// delay sets the time after which things are given up, unless it is set.
func (s *supervisor) delay(d time.Duration) {
	if s.timer == nil && d > 0 {
		s.timer = time.After(d)
	}
}

func (s *supervisor) kill() {
	s.killing++
	go func() { s.kills <- s.Kill(s.Live) }()
}

// awaitKills waits for the kills. That of a lost input may be followed by another.
func (s *supervisor) awaitKills() {
	for n := range s.killing {
		if err := <-s.kills; n == 0 || err == nil {
			s.res.Killed = err
		}
	}
}

// Cancellation returns the error of a run whose context has ended, given what
// Cancel returned; wrap describes an error of Cancel. It is nil if the command
// was over by then.
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
