package logstream

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/go-vercel/sandbox/internal/api"
	"github.com/go-vercel/sandbox/internal/wire"
)

// Reader reads a command's output. It is not safe for concurrent use.
type Reader struct {
	ctx context.Context
	cmd Command

	body *watched // nil while no stream is open
	dec  *wire.LogDecoder
	// waited is set for the stream of a waited command, which ends with a
	// record of how the command ended. Otherwise the stream is the command's
	// log.
	waited bool
	// opened is set once there was a stream. replay is set if the log is opened
	// again.
	opened, replay bool
	// openedAt is when the stream was opened; zero while there is none.
	openedAt time.Time

	delivered, skip [2]int64
	end             *wire.Command // how the command ended, once known
	complete        [2]int64      // where the log ended the last time, after end was known; -1 if it has not

	attempts
	closed int // streams in a row that the server closed without progress

	repair  *api.Span // in progress; nil for none
	repairs int       // begun
}

// attempts counts failures in a row without progress.
type attempts struct {
	limits   Limits
	failures int
	refusals int
	lastGain time.Time
}

func newAttempts(l Limits) attempts { return attempts{limits: l, lastGain: time.Now()} }

func (a *attempts) gained() { a.failures, a.refusals, a.lastGain = 0, 0, time.Now() }

// exhausted counts a failure and reports whether it was one too many.
func (a *attempts) exhausted(err error) bool {
	a.failures++
	if a.refusals++; judge(err) != refusal {
		a.refusals = 0
	}
	return a.failures > a.limits.Attempts || a.refusals >= maxRefusals || time.Since(a.lastGain) > a.limits.Limit
}

// pause waits before the next attempt, but not before the first.
func (a *attempts) pause(ctx context.Context) bool {
	if a.failures <= 1 {
		return ctx.Err() == nil
	}
	wait := min(a.limits.Wait<<min(a.failures-2, 16), maxPause)
	return api.Sleep(ctx, time.Duration(float64(wait)*(1+rand.Float64())))
}

// Follow returns a Reader of the command's log. end is how the command ended,
// or nil if unknown.
func Follow(ctx context.Context, cmd Command, end *wire.Command) *Reader {
	return &Reader{ctx: ctx, cmd: cmd, end: end, complete: [2]int64{-1, -1}, attempts: newAttempts(cmd.Limits)}
}

// Waited returns a Reader of the stream of a waited command. [Reader.Start]
// must be called first; it learns the command's ID.
func Waited(ctx context.Context, cmd Command, body io.ReadCloser) *Reader {
	r := Follow(ctx, cmd, nil)
	r.waited, r.opened, r.openedAt = true, true, time.Now()
	r.use(body)
	return r
}

// Adopt returns a Reader of the output of a command that was started by a stream
// which broke before its first record, and was found in another way. What its
// log is refused with is therefore an [Error], as of any stream that can't be
// repaired: it must not be taken for a refusal of the start.
func Adopt(ctx context.Context, cmd Command, found *wire.Command) *Reader {
	var end *wire.Command
	if found.ExitCode != nil {
		end = found
	}
	r := Follow(ctx, cmd, end)
	r.opened = true
	return r
}

// use sets the stream to read.
func (r *Reader) use(body io.ReadCloser) {
	r.body = watch(r.ctx, body, &r.cmd)
	r.dec = wire.NewLogDecoder(r.body)
}

// Close closes the stream.
func (r *Reader) Close() {
	if r.body != nil {
		r.body.Close()
		r.dec.Close()
		if end := r.body.ended(); end != nil && r.end == nil {
			r.end = end
		}
		r.body = nil
	}
}

// End returns how the command ended, or nil if that is not known yet.
func (r *Reader) End() *wire.Command { return r.end }

// Bytes returns the length of the output that was delivered.
func (r *Reader) Bytes() int64 { return r.delivered[0] + r.delivered[1] }

// Delivered reports whether there was output on each of the two streams.
func (r *Reader) Delivered() (stdout, stderr bool) { return r.delivered[0] > 0, r.delivered[1] > 0 }

// Start reads the first record of a waited command's stream: the command. Until
// then it is unknown whether the command runs.
func (r *Reader) Start() (*wire.Command, error) {
	for {
		rec, err := r.dec.Next()
		switch {
		case err == nil && rec.Kind == wire.KindCommand && rec.Command.ID != "":
			if in := rec.Command.SessionID; in != "" && in != r.cmd.Session {
				return nil, &Error{Code: CodeInvalidRecord, Message: "the stream is that of a command of another session"}
			}
			if rec.Command.ExitCode != nil {
				r.end = rec.Command
			}
			r.cmd.ID = rec.Command.ID
			r.body.watch(rec.Command.ID)
			return rec.Command, nil
		case err == nil && rec.Kind == wire.KindUnknown:
			continue
		case err == nil && rec.Kind == wire.KindError:
			return nil, &Error{Code: rec.Error.Code, Message: rec.Error.Message}
		case err == nil:
			return nil, &Error{Code: CodeInvalidRecord, Message: "the stream does not begin with the command"}
		case r.ctx.Err() != nil:
			return nil, api.ContextError(r.ctx)
		}
		if e, ok := invalid(err); ok {
			return nil, e
		}
		if err == io.EOF {
			err = nil
		}
		return nil, &Error{Code: CodeEndedEarly, Message: "Stream ended before command data was received", Err: err}
	}
}

// errAnother reports a stream in which another command ends.
var errAnother = errors.New("the stream is that of another command")

// Next returns the next piece of output, which is valid until the next call. It
// returns io.EOF when the command has ended and all output was delivered.
func (r *Reader) Next() (wire.Kind, []byte, error) {
	kind, data, err := r.next()
	if err != nil && err != io.EOF {
		r.repaired(err)
	}
	return kind, data, err
}

func (r *Reader) next() (wire.Kind, []byte, error) {
	for {
		if r.body == nil {
			if err := r.open(); err != nil {
				return 0, nil, err
			}
		}
		rec, err := r.dec.Next()
		if err == nil {
			switch rec.Kind {
			case wire.KindStdout, wire.KindStderr:
				if data, ok := r.fresh(&rec); ok {
					return rec.Kind, data, nil
				}
			case wire.KindError:
				if err := r.reported(&rec); err != nil {
					return 0, nil, err
				}
			case wire.KindCommand:
				switch {
				case rec.Command.ID != "" && rec.Command.ID != r.cmd.ID:
					if err := r.broken(errAnother); err != nil {
						return 0, nil, err
					}
				case rec.Command.ExitCode != nil:
					r.end = rec.Command
					if r.waited {
						r.drain()
						return 0, nil, io.EOF
					}
				}
			}
			continue
		}
		var whole bool
		bad, ok := invalid(err)
		switch {
		case r.ctx.Err() != nil:
			err = api.ContextError(r.ctx)
		case err == io.EOF && !r.waited:
			whole, err = r.atEnd()
		case ok:
			err = bad
		default:
			err = r.broken(err)
		}
		if err != nil {
			return 0, nil, err
		}
		if whole {
			return 0, nil, io.EOF
		}
	}
}

// fresh returns the part of a record that was not delivered before. It returns
// false if all of it was. The capacity of the result is limited to its length,
// so that appending to it does not change what follows.
func (r *Reader) fresh(rec *wire.Record) ([]byte, bool) {
	i := 0
	if rec.Kind == wire.KindStderr {
		i = 1
	}
	data := rec.Data
	if r.replay {
		n := min(r.skip[i], int64(len(data)))
		r.skip[i] -= n
		if data = data[n:]; len(data) == 0 {
			return nil, false
		}
		r.gained()
		r.closed = 0
	}
	r.delivered[i] += int64(len(data))
	return slices.Clip(data), true
}

// reported handles an error record. The one that says that the stream was
// closed may be about the stream alone: the log is then reopened once.
func (r *Reader) reported(rec *wire.Record) error {
	err := &Error{Code: rec.Error.Code, Message: rec.Error.Message}
	if !api.StreamClosed(rec.Error.Code) || r.cmd.ID == "" {
		return err
	}
	if r.closed++; r.closed > 1 {
		return err
	}
	return r.broken(err)
}

// drain reads what follows the last record, so that the connection can be
// reused. If the server does not end the stream, the connection is closed.
func (r *Reader) drain() {
	body := r.body // the timer must not use r, since it may fire late
	stop := time.AfterFunc(drainTime, func() { body.Close() })
	defer stop.Stop()
	for {
		if _, err := r.dec.Next(); err != nil {
			break // after an invalid line, too, the decoder has ended
		}
	}
	r.Close()
}

// open opens the command's log, within the limits.
func (r *Reader) open() error {
	for {
		body, err := r.cmd.open(r.ctx)
		if err == nil {
			r.skip, r.openedAt, r.opened, r.refusals = r.delivered, time.Now(), true, 0
			r.use(body)
			r.body.watch(r.cmd.ID)
			r.repaired(nil)
			return nil
		}
		switch {
		case r.ctx.Err() != nil:
			return api.ContextError(r.ctx)
		case judge(err) == final:
			return r.lost("log", err)
		}
		if err := r.broken(err); err != nil {
			return err
		}
	}
}

// lost returns the error of a stream that can't be continued.
func (r *Reader) lost(what string, err error) error {
	if !r.opened {
		return err // there was no stream to lose
	}
	return &Error{Code: CodeLost, Message: "the output stream broke and the " + what + " can't be read", Err: err}
}

// broken closes the stream and decides whether to reopen the log. The first
// attempt after progress is made at once, later ones after a pause.
func (r *Reader) broken(cause error) error {
	r.Close()
	if !r.openedAt.IsZero() && time.Since(r.openedAt) >= longLived {
		r.gained()
	}
	r.openedAt = time.Time{}
	if r.opened && !r.replay {
		r.replay, r.lastGain = true, time.Now()
	}
	r.cut(cause)
	r.waited = false
	if r.exhausted(cause) {
		switch {
		case !r.opened:
			return cause
		case r.refusals >= maxRefusals:
			return r.lost("log", cause)
		}
		return &Error{Code: CodeEndedEarly, Message: "Stream ended before command finished", Err: cause}
	}
	if !r.pause(r.ctx) {
		return api.ContextError(r.ctx)
	}
	return nil
}

// atEnd is called when the log has ended cleanly, which may also be a cut by a
// proxy. It reports whether the output is complete.
//
// A command that is still running has more to come. Once it has ended, the end
// of the log is trusted if a replay that began after the command's end stops
// where the log did before. A length that the response announced proves nothing:
// a proxy that stores what it passes on announces that of what has come to it.
func (r *Reader) atEnd() (bool, error) {
	if r.skip != [2]int64{} {
		return false, r.broken(io.ErrUnexpectedEOF)
	}
	if r.end == nil {
		// Waiting covers the moment in which the log is complete but the exit
		// code is not known yet, and costs little if the command keeps running.
		ctx, cancel := context.WithTimeout(r.ctx, endGrace)
		cmd, err := r.cmd.Look(ctx, true)
		late := ctx.Err() != nil && err != nil
		cancel()
		switch {
		case r.ctx.Err() != nil:
			return false, api.ContextError(r.ctx)
		case late, err == nil && cmd.ExitCode == nil:
			return false, r.broken(io.ErrUnexpectedEOF)
		case err == nil:
			r.end = cmd
		case judge(err) == final:
			return false, r.lost("command", err)
		default:
			return false, r.broken(err)
		}
	}
	if r.complete == r.delivered {
		return true, nil
	}
	r.complete = r.delivered
	r.Close()
	r.replay = true
	return false, nil
}
