package logstream

import (
	"context"
	"errors"
	"io"

	"github.com/go-vercel/sandbox/internal/api"
	"github.com/go-vercel/sandbox/internal/observe"
)

// The causes of repairs, besides the outcomes of requests.
const (
	causeCut    = "cut"    // the connection broke, or ended before the output did
	causeClosed = "closed" // the service said that it closes the stream
)

// repair is the event of one for observers.
type repair struct {
	ctx   context.Context
	event observe.Event
}

// cut tells that the stream has broken, and that a repair begins.
func (r *Reader) cut(cause error) {
	seam := r.cmd.Client.Seam()
	if seam == nil || r.repair != nil || !r.opened {
		return // one is in progress, or there was no stream
	}
	r.repairs++
	e := observe.Event{Kind: observe.Repair, Session: r.cmd.Session, Command: r.cmd.ID, Attempt: r.repairs, Cause: causeCut}
	if _, ok := errors.AsType[*Error](cause); ok {
		e.Cause = causeClosed
	} else if f, ok := errors.AsType[*api.Failure](cause); ok {
		e.Cause = f.Kind.String()
	}
	if cause != io.EOF && cause != io.ErrUnexpectedEOF {
		e.CauseErr = cause
	}
	ctx, e := seam.Begin(r.ctx, e)
	r.repair = &repair{ctx, e}
}

// repaired tells that the repair is over: the log is open again, or err has
// ended it.
func (r *Reader) repaired(err error) {
	if r.repair == nil {
		return
	}
	e := r.repair.event
	e.Err, e.Received = err, r.Bytes()
	if _, lost := errors.AsType[*Error](err); lost {
		e.Outcome = observe.Failed
	} else {
		e.Outcome = api.Outcome(r.ctx, err)
	}
	r.cmd.Client.Seam().End(r.repair.ctx, e)
	r.repair = nil
}
