package logstream

import (
	"errors"
	"io"

	"github.com/go-vercel/sandbox/internal/api"
	"github.com/go-vercel/sandbox/observe"
)

// The causes of repairs, besides the outcomes of requests.
const (
	causeCut    = "cut"    // the connection broke, or ended before the output did
	causeClosed = "closed" // the service said that it closes the stream
)

// cut tells that the stream has broken, and that a repair begins.
func (r *Reader) cut(cause error) {
	if !r.cmd.Client.Observed() || r.repair != nil || !r.opened {
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
	_, begun := r.cmd.Client.Begin(r.ctx, e)
	r.repair = &begun
}

// repaired tells that the repair is over: the log is open again, or err has
// ended it.
func (r *Reader) repaired(err error) {
	if r.repair == nil {
		return
	}
	if _, lost := errors.AsType[*Error](err); lost {
		r.repair.Outcome = observe.Failed
	}
	r.repair.Received = r.Bytes()
	r.repair.End(err)
	r.repair = nil
}
