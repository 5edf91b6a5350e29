package sandbox

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"
	"time"

	"github.com/go-vercel/sandbox/internal/api"
	"github.com/go-vercel/sandbox/internal/wire"
)

const (
	// stdinBatch limits the input in one request, and the further input that
	// may wait to be sent. The API accepts a megabyte of JSON.
	stdinBatch = 512 << 10
	// stdinDelay is how long input waits for further input to be sent along with it.
	stdinDelay = 2 * time.Millisecond
	// stdinTimeout is how long a response may take: the API responds after 30
	// seconds at the latest if the command does not read.
	stdinTimeout = 45 * time.Second
	// stdinHeld distinguishes two causes of a failed request. If the request took at
	// least this long, the command does not read; otherwise something is broken.
	stdinHeld = 5 * time.Second
	// stdinMaxWait is the longest pause before a retry.
	stdinMaxWait = 10 * time.Second
)

// Stdin returns a writer to the standard input of a command that was started
// with [StartOptions].AttachStdin. ctx applies to all of its requests. The
// caller must close it, which ends the input and returns nil only if the API
// has confirmed every byte. It is not safe for concurrent use, and only one can
// be open at a time; a later writer continues where the last one stopped.
//
// Writes are collected for a few milliseconds and sent one after another, up to
// 512 KiB per request. A command that does not read blocks the writer. Each
// byte is delivered once and in order, since requests carry its position.
//
// An error of the delivery is returned by a later Write or by Close. It matches
// [io.ErrClosedPipe] if the command has ended or closed its input, and
// [ErrOutcomeUnknown] if a response was lost and it is unknown what arrived.
func (c *Command) Stdin(ctx context.Context) io.WriteCloser {
	w := &stdinWriter{ctx: ctx, cmd: c, wake: make(chan struct{}, 1), room: make(chan struct{}, 1), done: make(chan struct{})}
	client, err := enter(ctx, c)
	if err == nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.stdinOpen {
			err = invalid("Stdin", "is open already")
		}
		if c.stdinNone {
			err = fmt.Errorf("%w: %s", io.ErrClosedPipe, noInput)
		}
	}
	if err != nil {
		w.err = err
		close(w.done)
		return w
	}
	w.client, w.at, c.stdinOpen = client, -1, true
	if c.stdinKnown {
		w.at = c.stdinAt
	}
	w.lost, c.stdinLost = c.stdinLost, lostInput{}
	go w.run()
	return w
}

// stdinWriter sends input to a command. Its goroutine, run, ends when the input does.
type stdinWriter struct {
	ctx    context.Context
	cmd    *Command
	client *Client

	mu     sync.Mutex
	buf    []byte
	closed bool
	err    error
	wake   chan struct{} // signals run that there is something to do
	room   chan struct{} // signals Write that buf has room again
	done   chan struct{} // closed when run has ended, with its error in err

	// Used by run only.
	at, end      int64 // the positions of the data to send; -1 if not known
	counted      bool  // the sandbox has reported how much it received
	uncertain    bool  // a request that may have taken effect received no response
	failures     int
	lastProgress time.Time
	lost         lostInput
}

// lostInput is the content of a request without a response. It may have
// arrived, or may still arrive.
type lostInput struct {
	at   int64
	data []byte
}

// closedPipeError is io.ErrClosedPipe with the API's error. unsure is set if it is unknown
// whether the last request was delivered, and no further input was written.
type closedPipeError struct {
	api    error
	unsure bool
}

const noInput = "the command reads no input; start it with AttachStdin"

func (e closedPipeError) Error() string {
	if e.unsure {
		return io.ErrClosedPipe.Error() + ": the command has ended, and may not have received the end of its input"
	}
	if api, ok := e.api.(*APIError); ok && api.Code == "command_stdin_unavailable" {
		return io.ErrClosedPipe.Error() + ": " + noInput
	}
	return io.ErrClosedPipe.Error()
}

func (e closedPipeError) Unwrap() []error {
	if e.unsure {
		return []error{io.ErrClosedPipe, e.api, ErrOutcomeUnknown}
	}
	return []error{io.ErrClosedPipe, e.api}
}

// undelivered returns the error for a writer that accepted more input than its last request
// contained. The rest has certainly not arrived.
func undelivered(err error) error {
	if gone, ok := errors.AsType[closedPipeError](err); ok {
		gone.unsure = false
		return gone
	}
	return err
}

func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Write accepts p. It blocks while too much input waits to be sent.
func (w *stdinWriter) Write(p []byte) (int, error) {
	n := 0
	for {
		w.mu.Lock()
		if w.closed {
			w.mu.Unlock()
			return n, &fs.PathError{Op: "write", Path: "|1", Err: os.ErrClosed}
		}
		if w.err != nil {
			if len(p) > 0 {
				w.err = undelivered(w.err)
			}
			err := w.err
			w.mu.Unlock()
			return n, err
		}
		take := min(len(p), stdinBatch-len(w.buf))
		w.buf = append(w.buf, p[:take]...)
		w.mu.Unlock()
		n, p = n+take, p[take:]
		if take > 0 {
			notify(w.wake)
		}
		if len(p) == 0 {
			return n, nil
		}
		select {
		case <-w.room:
		case <-w.done:
		}
	}
}

// Close ends the input, and waits until everything is delivered.
func (w *stdinWriter) Close() error {
	w.mu.Lock()
	if w.closed {
		w.mu.Unlock()
		return &fs.PathError{Op: "close", Path: "|1", Err: os.ErrClosed}
	}
	w.closed = true
	w.mu.Unlock()
	notify(w.wake)
	<-w.done
	return w.err
}

func (w *stdinWriter) run() {
	spare := make([]byte, 0, stdinBatch)
	w.lastProgress = time.Now()
	err := w.resend()
	for last := false; err == nil && !last; {
		var data []byte
		if data, last, err = w.next(spare[:0]); err != nil {
			break
		}
		w.failures, w.lastProgress = 0, time.Now()
		err = w.send(data, last)
		spare = data
	}
	w.mu.Lock()
	if len(w.buf) > 0 {
		err = undelivered(err)
	}
	w.err, w.buf = err, nil
	w.mu.Unlock()
	w.cmd.mu.Lock()
	w.cmd.stdinOpen = false
	// After an error, how much of the last request arrived is unknown.
	w.cmd.stdinAt, w.cmd.stdinKnown = w.at, err == nil
	w.cmd.stdinLost = w.lost
	w.cmd.mu.Unlock()
	close(w.done)
}

// next waits for data to send and returns it. spare becomes the buffer of later writes.
// last means that the input ends after the data.
func (w *stdinWriter) next(spare []byte) (data []byte, last bool, err error) {
	var delay <-chan time.Time
	for {
		w.mu.Lock()
		if w.closed || len(w.buf) == stdinBatch || len(w.buf) > 0 && delay != nil && ready(delay) {
			data, last = w.buf, w.closed
			w.buf = spare
			w.mu.Unlock()
			notify(w.room)
			return data, last, nil
		}
		if len(w.buf) > 0 && delay == nil {
			timer := time.NewTimer(stdinDelay)
			defer timer.Stop()
			delay = timer.C
		}
		w.mu.Unlock()
		select {
		case <-w.wake:
		case <-delay:
			closed := make(chan time.Time)
			close(closed)
			delay = closed // always ready
		case <-w.ctx.Done():
			return nil, false, api.ContextError(w.ctx)
		}
	}
}

func ready(c <-chan time.Time) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

type stdinBody struct {
	Data   []byte `json:"data,omitempty"` // in base64
	Offset *int64 `json:"offset,omitempty"`
	Close  bool   `json:"close,omitempty"`
}

// resend delivers the input that an earlier writer has lost. New data would get the same
// position, and whichever of the two arrives second would be skipped.
func (w *stdinWriter) resend() error {
	if len(w.lost.data) == 0 {
		return nil
	}
	if err := w.queryOffset(); err != nil {
		return err
	}
	lost := w.lost
	if known := w.at - lost.at; known >= 0 && known < int64(len(lost.data)) {
		return w.send(lost.data[known:], false)
	}
	w.lost = lostInput{}
	return nil
}

// send delivers data, followed by the end of the input if last is set.
func (w *stdinWriter) send(data []byte, last bool) (err error) {
	w.uncertain = false
	defer func() {
		w.lost = lostInput{}
		if left := w.end - w.at; err != nil && w.at >= 0 && left > 0 && (w.uncertain || w.ctx.Err() != nil) {
			w.lost = lostInput{w.at, bytes.Clone(data[int64(len(data))-left:])}
		}
	}()
	if w.at < 0 { // an earlier writer failed to find out how much had arrived
		if err := w.queryOffset(); err != nil {
			return err
		}
	}
	w.end = w.at + int64(len(data))
	for w.at < w.end || last {
		offset := w.at
		began := time.Now()
		written, err := w.request(&stdinBody{Data: data[int64(len(data))-(w.end-w.at):], Offset: &offset, Close: last})
		if lost := w.advance(written); lost != nil {
			return lost
		}
		switch {
		case err == nil && written == nil:
			w.at = w.end // the sandbox does not report how much it received
			return nil
		case err == nil && w.at == w.end:
			return nil
		case err == nil && w.at > offset:
			continue // the rest was not accepted
		case err == nil:
			if err := w.pause(fmt.Errorf("sandbox: writing to command %s: the sandbox accepts nothing", w.cmd.ID()), 0); err != nil {
				return err
			}
			continue
		}
		if err = w.waitBeforeRetry(err, time.Since(began)); err == nil {
			continue
		}
		if gone, ok := errors.AsType[closedPipeError](err); ok {
			if w.at == w.end {
				return nil // it received everything
			}
			gone.unsure = w.uncertain
			return gone
		}
		return err
	}
	return nil
}

// advance records how much the command has received; nil means unknown.
func (w *stdinWriter) advance(written *int64) error {
	switch {
	case written == nil:
		return nil
	case w.at < 0:
		w.at, w.end = *written, *written
	case *written < w.at || *written > w.end:
		return fmt.Errorf("sandbox: writing to command %s: it reports %d bytes of input instead of %d to %d: another client writes too, or input was lost",
			w.cmd.ID(), *written, w.at, w.end)
	case *written > w.at:
		w.at, w.failures, w.lastProgress = *written, 0, time.Now()
	}
	w.counted = true
	return nil
}

// request makes one request. written is how much the command has received so far. An error
// response may report it too.
func (w *stdinWriter) request(body *stdinBody) (written *int64, err error) {
	ctx, cancel := context.WithTimeout(w.ctx, stdinTimeout)
	defer cancel()
	var resp wire.StdinResponse
	err = w.client.do(ctx, &api.Request{Op: api.WriteStdin, Path: []string{w.cmd.session, w.cmd.ID()}, Body: body}, &resp)
	if err == nil && w.counted && resp.BytesWritten == nil {
		err = &RequestError{
			operation: api.WriteStdin.Name, session: w.cmd.session, unknown: true,
			Err: errors.New("the response does not say what the command has received"),
		}
	}
	if err == nil {
		return resp.BytesWritten, nil
	}
	if e, ok := err.(*APIError); ok {
		var report struct {
			BytesWritten *int64 `json:"bytesWritten"`
			Error        struct {
				BytesWritten *int64 `json:"bytesWritten"`
			} `json:"error"`
		}
		if json.Unmarshal(e.Body, &report) == nil {
			if written = report.BytesWritten; written == nil {
				written = report.Error.BytesWritten
			}
		}
	}
	return written, err
}

// waitBeforeRetry waits before a failed request is retried. It returns an error if a retry
// is not allowed. If the sandbox does not report positions, a retry is safe only if the
// request had no effect. If the input is closed, the error is a closedPipeError.
func (w *stdinWriter) waitBeforeRetry(err error, lasted time.Duration) error {
	if w.ctx.Err() != nil {
		return api.ContextError(w.ctx)
	}
	e, answered := err.(*APIError)
	if answered && (e.errorKind() == api.CommandEnded || e.errorKind() == api.InputClosed || errors.Is(e, ErrStopped)) {
		return closedPipeError{api: e}
	}
	_, unanswered := err.(*RequestError)
	if !unanswered && !(answered && e.errorKind().Passing()) {
		return err
	}
	if errors.Is(err, ErrOutcomeUnknown) {
		w.uncertain = true
		if !w.counted {
			if queryErr := w.queryOffset(); queryErr != nil {
				return queryErr
			}
			if !w.counted {
				return err
			}
		}
	}
	if answered && e.errorKind() == api.TimedOut && lasted >= stdinHeld {
		w.failures, w.lastProgress = 0, time.Now() // the command does not read
	}
	if answered {
		return w.pause(err, e.RetryAfter)
	}
	return w.pause(err, 0)
}

// pause waits at least the given time before the next attempt. It returns err
// if no attempt remains, or if the wait would exceed the limits.
func (w *stdinWriter) pause(err error, least time.Duration) error {
	limits := w.client.reattach
	if w.failures++; w.failures > limits.Attempts || time.Since(w.lastProgress)+least > limits.Limit {
		return err
	}
	return api.Pause(w.ctx, max(least, min(limits.Wait<<min(w.failures-1, 16), stdinMaxWait)))
}

// queryOffset asks how much the command has received. If the sandbox does not report it,
// that is an error only if the number is needed.
func (w *stdinWriter) queryOffset() error {
	for {
		began := time.Now()
		written, err := w.request(&stdinBody{})
		if lost := w.advance(written); lost != nil {
			return lost
		}
		switch {
		case err == nil && w.at < 0:
			return fmt.Errorf("sandbox: writing to command %s: the sandbox can't tell how much of the input has arrived", w.cmd.ID())
		case err == nil:
			return nil
		}
		counted := w.counted
		w.counted = true // a query can safely be repeated
		err = w.waitBeforeRetry(err, time.Since(began))
		w.counted = counted
		if err != nil {
			return err
		}
	}
}
