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

	body *watchedBody // nil if no stream is open
	dec  *wire.LogDecoder
	// isWaited is set for the stream of a waited command, which ends with a record of the
	// command's end. Otherwise the stream is the command's log.
	isWaited bool
	// opened is set after the first stream was opened. replay is set if the log is
	// reopened.
	opened, replay bool
	// openedAt is when the stream was opened; zero if there is none.
	openedAt time.Time

	delivered, skip [2]int64
	end             *wire.Command // the ended command, once known
	complete        [2]int64      // length of the last log that ended after end was known; -1 for none

	attempts
	closed int // number of consecutive streams that the server closed without progress

	repair  *api.Span // the repair in progress; may be nil
	repairs int       // number of repairs
}

// attempts counts consecutive failures without progress.
type attempts struct {
	limits       Limits
	failures     int
	refusals     int
	lastProgress time.Time
}

func newAttempts(l Limits) attempts { return attempts{limits: l, lastProgress: time.Now()} }

func (a *attempts) progressed() { a.failures, a.refusals, a.lastProgress = 0, 0, time.Now() }

// exhausted counts a failure and reports whether it exceeds a limit.
func (a *attempts) exhausted(err error) bool {
	a.failures++
	if a.refusals++; judge(err) != refusal {
		a.refusals = 0
	}
	return a.failures > a.limits.Attempts || a.refusals >= maxRefusals || time.Since(a.lastProgress) > a.limits.Limit
}

// pause waits before the next attempt, but not before the first.
func (a *attempts) pause(ctx context.Context) bool {
	if a.failures <= 1 {
		return ctx.Err() == nil
	}
	wait := min(a.limits.Wait<<min(a.failures-2, 16), maxPause)
	return api.Sleep(ctx, time.Duration(float64(wait)*(1+rand.Float64())))
}

// Follow returns a Reader of the command's log. end is the ended command, or nil if it may be
// running.
func Follow(ctx context.Context, cmd Command, end *wire.Command) *Reader {
	return &Reader{ctx: ctx, cmd: cmd, end: end, complete: [2]int64{-1, -1}, attempts: newAttempts(cmd.Limits)}
}

// Waited returns a Reader of the stream of a waited command. [Reader.Start] must be called
// first; it reads the command's ID.
func Waited(ctx context.Context, cmd Command, body io.ReadCloser) *Reader {
	r := Follow(ctx, cmd, nil)
	r.isWaited, r.opened, r.openedAt = true, true, time.Now()
	r.setBody(body)
	return r
}

// Adopt returns a Reader of the output of a command whose stream broke before the first
// record, and that was found by its ID. If its log is refused, the error is an [Error], as for
// any stream that can't be repaired, because it must not look like a refusal of the start.
func Adopt(ctx context.Context, cmd Command, found *wire.Command) *Reader {
	var end *wire.Command
	if found.ExitCode != nil {
		end = found
	}
	r := Follow(ctx, cmd, end)
	r.opened = true
	return r
}

// setBody sets the stream to read.
func (r *Reader) setBody(body io.ReadCloser) {
	r.body = watchBody(r.ctx, body, &r.cmd)
	r.dec = wire.NewLogDecoder(r.body)
}

// Close closes the stream.
func (r *Reader) Close() {
	if r.body != nil {
		r.body.Close()
		r.dec.Close()
		if end := r.body.commandEnd(); end != nil && r.end == nil {
			r.end = end
		}
		r.body = nil
	}
}

// End returns the ended command, or nil if the end is not known yet.
func (r *Reader) End() *wire.Command { return r.end }

// Bytes returns the length of the output that was delivered.
func (r *Reader) Bytes() int64 { return r.delivered[0] + r.delivered[1] }

// Delivered reports whether there was output on each of the two streams.
func (r *Reader) Delivered() (stdout, stderr bool) { return r.delivered[0] > 0, r.delivered[1] > 0 }

// Start reads the first record of a waited command's stream, which is the command. Before
// that it is unknown whether the command runs.
func (r *Reader) Start() (*wire.Command, error) {
	for {
		rec, err := r.dec.Next()
		switch {
		case err == nil && rec.Kind == wire.KindCommand && rec.Command.ID != "":
			if in := rec.Command.SessionID; in != "" && in != r.cmd.Session {
				return nil, &Error{Code: CodeInvalidRecord, Message: "the stream belongs to a command of another session"}
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
		if e, ok := invalidLine(err); ok {
			return nil, e
		}
		if err == io.EOF {
			err = nil
		}
		return nil, &Error{Code: CodeEndedEarly, Message: "Stream ended before command data was received", Err: err}
	}
}

// errOtherCommand reports a stream with a record of another command.
var errOtherCommand = errors.New("the stream belongs to another command")

// Next returns the next piece of output, which is valid until the next call. It
// returns io.EOF when the command has ended and all output was delivered.
func (r *Reader) Next() (wire.Kind, []byte, error) {
	kind, data, err := r.next()
	if err != nil && err != io.EOF {
		r.finishRepair(err)
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
				if data, ok := r.undelivered(&rec); ok {
					return rec.Kind, data, nil
				}
			case wire.KindError:
				if err := r.handleError(&rec); err != nil {
					return 0, nil, err
				}
			case wire.KindCommand:
				switch {
				case rec.Command.ID != "" && rec.Command.ID != r.cmd.ID:
					if err := r.reopen(errOtherCommand); err != nil {
						return 0, nil, err
					}
				case rec.Command.ExitCode != nil:
					r.end = rec.Command
					if r.isWaited {
						r.drain()
						return 0, nil, io.EOF
					}
				}
			}
			continue
		}
		var complete bool
		bad, ok := invalidLine(err)
		switch {
		case r.ctx.Err() != nil:
			err = api.ContextError(r.ctx)
		case err == io.EOF && !r.isWaited:
			complete, err = r.confirmEnd()
		case ok:
			err = bad
		default:
			err = r.reopen(err)
		}
		if err != nil {
			return 0, nil, err
		}
		if complete {
			return 0, nil, io.EOF
		}
	}
}

// undelivered returns the part of a record that was not delivered before, or false if there is
// none. The result is clipped, so that appending to it does not overwrite the buffer.
func (r *Reader) undelivered(rec *wire.Record) ([]byte, bool) {
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
		r.progressed()
		r.closed = 0
	}
	r.delivered[i] += int64(len(data))
	return slices.Clip(data), true
}

// handleError handles an error record. If it says that the stream was closed, the log is
// reopened once, because the session may still run.
func (r *Reader) handleError(rec *wire.Record) error {
	err := &Error{Code: rec.Error.Code, Message: rec.Error.Message}
	if !api.StreamClosed(rec.Error.Code) || r.cmd.ID == "" {
		return err
	}
	if r.closed++; r.closed > 1 {
		return err
	}
	return r.reopen(err)
}

// drain reads to the end of the stream, so that the connection can be reused. If the server
// does not end the stream, drain closes the connection.
func (r *Reader) drain() {
	body := r.body // the timer must not use r, since it may fire late
	stop := time.AfterFunc(drainTime, func() { body.Close() })
	defer stop.Stop()
	for {
		if _, err := r.dec.Next(); err != nil {
			break // the decoder also ends at an invalid line
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
			r.setBody(body)
			r.body.watch(r.cmd.ID)
			r.finishRepair(nil)
			return nil
		}
		switch {
		case r.ctx.Err() != nil:
			return api.ContextError(r.ctx)
		case judge(err) == final:
			return r.lostError("log", err)
		}
		if err := r.reopen(err); err != nil {
			return err
		}
	}
}

// lostError returns the error of a stream that can't be continued.
func (r *Reader) lostError(what string, err error) error {
	if !r.opened {
		return err // no stream was open before
	}
	return &Error{Code: CodeLost, Message: "the output stream broke and the " + what + " can't be read", Err: err}
}

// reopen closes the broken stream and waits before the log is opened again. The first
// attempt after progress follows at once. reopen fails if the limits are exceeded.
func (r *Reader) reopen(cause error) error {
	r.Close()
	if !r.openedAt.IsZero() && time.Since(r.openedAt) >= longLived {
		r.progressed()
	}
	r.openedAt = time.Time{}
	if r.opened && !r.replay {
		r.replay, r.lastProgress = true, time.Now()
	}
	r.startRepair(cause)
	r.isWaited = false
	if r.exhausted(cause) {
		switch {
		case !r.opened:
			return cause
		case r.refusals >= maxRefusals:
			return r.lostError("log", cause)
		}
		return &Error{Code: CodeEndedEarly, Message: "Stream ended before command finished", Err: cause}
	}
	if !r.pause(r.ctx) {
		return api.ContextError(r.ctx)
	}
	return nil
}

// confirmEnd handles a clean end of the log, which may also be a cut by a proxy. It reports
// whether the output is complete.
//
// If the command still runs, the log is not complete. After the command has ended, the log is
// complete if a replay that starts then stops at the same position. The response's
// Content-Length proves nothing: a proxy that buffers sets it to what it has received.
func (r *Reader) confirmEnd() (bool, error) {
	if r.skip != [2]int64{} {
		return false, r.reopen(io.ErrUnexpectedEOF)
	}
	if r.end == nil {
		// Wait, because the log may be complete just before the exit code is known.
		// Waiting costs little if the command still runs.
		ctx, cancel := context.WithTimeout(r.ctx, endGrace)
		cmd, err := r.cmd.Look(ctx, true)
		late := ctx.Err() != nil && err != nil
		cancel()
		switch {
		case r.ctx.Err() != nil:
			return false, api.ContextError(r.ctx)
		case late, err == nil && cmd.ExitCode == nil:
			return false, r.reopen(io.ErrUnexpectedEOF)
		case err == nil:
			r.end = cmd
		case judge(err) == final:
			return false, r.lostError("command", err)
		default:
			return false, r.reopen(err)
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
