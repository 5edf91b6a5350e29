package sandbox

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/go-vercel/sandbox/internal/api"
	"github.com/go-vercel/sandbox/internal/wire"
)

// ReattachOptions limits how the output stream of a command is repaired after
// it broke. The limits are about attempts that bring nothing new: a stream that
// goes on a little each time is repaired for as long as the command runs.
type ReattachOptions struct {
	// Attempts is how often in a row a broken stream is opened again without
	// any progress. Zero means 20; a negative number never repairs.
	Attempts int
	// Limit is how long a stream may go without progress while it is being
	// repaired. Zero means five minutes.
	Limit time.Duration
	// Wait is the pause before the second attempt in a row; the first is made
	// at once. It doubles up to ten seconds. Zero means 400 ms.
	Wait time.Duration
}

const maxReattachWait = 10 * time.Second

// longLived is how long a connection must have carried a request for its break
// to count as the platform's cut rather than as a failure to reach it. The time
// that it took to get a connection is no part of that.
const longLived = 30 * time.Second

func (o *ReattachOptions) withDefaults() (ReattachOptions, error) {
	var r ReattachOptions
	if o != nil {
		r = *o
	}
	if r.Limit < 0 {
		return r, invalid("Reattach.Limit", "%v is negative", r.Limit)
	}
	if r.Wait < 0 {
		return r, invalid("Reattach.Wait", "%v is negative", r.Wait)
	}
	if r.Attempts == 0 {
		r.Attempts = 20
	}
	if r.Limit == 0 {
		r.Limit = 5 * time.Minute
	}
	if r.Wait == 0 {
		r.Wait = 400 * time.Millisecond
	}
	return r, nil
}

// follower reads a command's output and repairs the stream when it breaks: the
// log is replayed from its start, and of each stream the bytes that were
// delivered before are skipped.
type follower struct {
	ctx         context.Context
	c           *Client
	session, id string

	body io.ReadCloser // nil while no stream is open
	dec  *wire.LogDecoder
	// waited: the stream is that of a waited command, which ends in a record of
	// how the command ended. Otherwise it is the command's log.
	waited bool
	// replay: the stream was opened again after a break.
	replay bool
	// openedAt is when the stream was opened; zero while there is none.
	openedAt time.Time

	delivered, skip [2]int64
	end             *wire.Command // how the command ended, once known
	endedBefore     bool          // it was known when the stream was opened
	complete        [2]int64      // where a replay of the whole log ended; -1 for none yet

	failures int // breaks in a row without progress
	lastGain time.Time
}

// newFollower follows a command's log from its start.
func newFollower(ctx context.Context, c *Client, cmd *Command) *follower {
	f := &follower{ctx: ctx, c: c, session: cmd.session, id: cmd.ID(), lastGain: time.Now(), complete: [2]int64{-1, -1}}
	if data := cmd.wire(); data.ExitCode != nil {
		f.end = &data
	}
	return f
}

func (f *follower) close() {
	if f.body != nil {
		f.body.Close()
		f.dec.Close()
		f.body = nil
	}
}

// streamError makes the error of a stream that can't go on.
func (f *follower) streamError(code, message string, err error) *StreamError {
	return &StreamError{
		Code: f.c.secrets.Text(code), Message: f.c.secrets.Text(message),
		SessionID: f.session, CommandID: f.id, Err: f.c.secrets.Error(err),
	}
}

// next returns the next piece of output. The data is valid until the next
// call. io.EOF is returned when the command has ended and all its output was
// delivered.
func (f *follower) next() (LogStream, []byte, error) {
	for {
		if f.body == nil {
			if err := f.open(); err != nil {
				return "", nil, err
			}
		}
		rec, err := f.dec.Next()
		if err == nil {
			switch rec.Kind {
			case wire.KindStdout, wire.KindStderr:
				stream, data := Stdout, rec.Data
				i := 0
				if rec.Kind == wire.KindStderr {
					stream, i = Stderr, 1
				}
				if f.replay {
					n := min(f.skip[i], int64(len(data)))
					f.skip[i] -= n
					if data = data[n:]; len(data) == 0 {
						continue
					}
					f.failures, f.lastGain = 0, time.Now()
				}
				f.delivered[i] += int64(len(data))
				return stream, data, nil
			case wire.KindError:
				return "", nil, f.streamError(rec.Error.Code, rec.Error.Message, nil)
			case wire.KindCommand:
				if rec.Command.ExitCode != nil {
					f.end = rec.Command
					if f.waited {
						f.drain()
						return "", nil, io.EOF
					}
				}
			}
			continue
		}
		var ended bool
		switch {
		case f.ctx.Err() != nil:
			err = f.cancelled()
		case err == io.EOF && !f.waited:
			ended, err = f.atEnd()
		case isLineError(err):
			err = f.streamError("invalid_record", "the stream holds a line that is no log record", err)
		default:
			err = f.broken(err)
		}
		if err != nil {
			return "", nil, err
		}
		if ended {
			return "", nil, io.EOF
		}
	}
}

func isLineError(err error) bool {
	_, ok := errors.AsType[*wire.LineError](err)
	return ok
}

func (f *follower) cancelled() error {
	return &RequestError{Operation: "read output of command " + f.id, SessionID: f.session, Err: context.Cause(f.ctx)}
}

// drainTime is how long the end of a stream is waited for.
const drainTime = 250 * time.Millisecond

// drain reads the little that follows the last record, so that the connection
// can be used again. A server that does not end the stream costs it.
func (f *follower) drain() {
	body := f.body // f is not the timer's to look at: it may be late
	stop := time.AfterFunc(drainTime, func() { body.Close() })
	defer stop.Stop()
	for {
		if _, err := f.dec.Next(); err != nil {
			break // after a line that is no record, too, the decoder is at its end
		}
	}
	f.close()
}

// open opens the command's log. After a break it tries for as long as the
// limits allow.
func (f *follower) open() error {
	for {
		f.endedBefore = f.end != nil
		resp, err := f.c.stream(f.ctx, &api.Request{Op: api.CommandLogs, Path: []string{f.session, f.id}, Accept: ndjson})
		if err == nil {
			f.skip, f.openedAt = f.delivered, time.Now()
			f.body, f.dec = resp.Body, wire.NewLogDecoder(resp.Body)
			return nil
		}
		if f.ctx.Err() != nil || !f.replay {
			return err
		}
		if e, ok := errors.AsType[*APIError](err); ok && e.Status < 500 && e.Status != http.StatusTooManyRequests {
			return f.streamError("stream_lost", "the output stream broke and the log can't be read", err)
		}
		if err := f.broken(err); err != nil {
			return err
		}
	}
}

// broken closes the stream and decides whether to open the log again. The first
// attempt after progress is made at once, later ones after a pause.
func (f *follower) broken(cause error) error {
	f.close()
	if !f.openedAt.IsZero() && time.Since(f.openedAt) >= longLived {
		f.failures, f.lastGain = 0, time.Now()
	}
	f.openedAt = time.Time{}
	if !f.replay {
		f.replay, f.lastGain = true, time.Now()
	}
	f.waited = false
	limits := f.c.reattach
	if f.failures++; f.failures > limits.Attempts || time.Since(f.lastGain) > limits.Limit {
		return f.streamError("stream_ended_early", "Stream ended before command finished", cause)
	}
	if f.failures == 1 {
		return nil
	}
	wait := min(limits.Wait<<min(f.failures-2, 16), maxReattachWait)
	timer := time.NewTimer(time.Duration(float64(wait) * (1 + rand.Float64())))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-f.ctx.Done():
		return f.cancelled()
	}
}

// atEnd is called when the log ended cleanly, which a proxy's cut can look
// like. It reports whether that was all.
//
// A command that still runs has more to come. One that has ended, found so
// after an unbroken stream, has not. After a repair the end is trusted only
// when a replay that began after the command's end stops at the same place as
// the one before.
func (f *follower) atEnd() (bool, error) {
	if f.skip != [2]int64{} {
		return false, f.broken(io.ErrUnexpectedEOF)
	}
	if f.end == nil {
		// Waiting bridges the moment in which the log is complete and the exit
		// code not known yet, and costs little where the command runs on.
		ctx, cancel := context.WithTimeout(f.ctx, endGrace)
		cmd, err := f.c.getCommand(ctx, f.session, f.id, true)
		late := ctx.Err() != nil && err != nil
		cancel()
		e, refused := errors.AsType[*APIError](err)
		refused = refused && e.Status < 500 && e.Status != http.StatusTooManyRequests
		switch {
		case f.ctx.Err() != nil:
			return false, f.cancelled()
		case late, err == nil && cmd.ExitCode == nil:
			return false, f.broken(io.ErrUnexpectedEOF)
		case err == nil:
			f.end = cmd
		case refused && !f.replay:
			// The session is gone, and with it all that could be learnt.
			return true, nil
		case refused:
			return false, f.streamError("stream_lost", "the output stream broke and the command can't be read", err)
		default:
			return false, f.broken(err)
		}
	}
	if !f.replay {
		return true, nil
	}
	if f.endedBefore && f.complete == f.delivered {
		return true, nil
	}
	f.complete = f.delivered
	f.close()
	return false, nil
}

// endGrace is how long the end of a command is waited for when its log ended.
const endGrace = 2 * time.Second

const ndjson = "application/x-ndjson"

// getCommand asks for a command's state; with wait, for its end.
func (c *Client) getCommand(ctx context.Context, session, id string, wait bool) (*wire.Command, error) {
	req := &api.Request{Op: api.GetCommand, Path: []string{session, id}}
	if wait {
		req.Query = url.Values{"wait": {"true"}}
	}
	var answer wire.CommandAnswer
	if err := c.do(ctx, req, &answer); err != nil {
		return nil, err
	}
	return &answer.Command, nil
}

// waitCommand waits for a command's end, for as long as ctx allows: the
// platform cuts requests that last for minutes.
func (c *Client) waitCommand(ctx context.Context, session, id string) (*wire.Command, error) {
	// When the last attempt got its connection, in nanoseconds; 0 for not yet.
	var connected atomic.Int64
	traced := httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn: func(string) { connected.Store(0) },
		GotConn: func(httptrace.GotConnInfo) { connected.Store(time.Now().UnixNano()) },
	})
	for {
		connected.Store(0)
		start := time.Now()
		cmd, err := c.getCommand(traced, session, id, true)
		switch {
		case err == nil && cmd.ExitCode != nil:
			return cmd, nil
		case err != nil && (ctx.Err() != nil || !repeatable(err)):
			return nil, err
		case err != nil:
			if at := connected.Load(); at == 0 || time.Since(time.Unix(0, at)) < longLived {
				return nil, err
			}
		}
		if time.Since(start) < pollInterval {
			timer := time.NewTimer(pollInterval)
			select {
			case <-timer.C:
			case <-ctx.Done():
				timer.Stop()
				return nil, &RequestError{Operation: api.GetCommand.Name, SessionID: session, Err: context.Cause(ctx)}
			}
		}
	}
}

// repeatable reports whether a read that failed may succeed another time.
func repeatable(err error) bool {
	e, ok := errors.AsType[*APIError](err)
	return !ok || e.Status >= 500 || e.Status == http.StatusTooManyRequests || e.Status < 300
}
