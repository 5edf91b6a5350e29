package logstream

import (
	"errors"
	"io"

	"github.com/go-vercel/sandbox/internal/api"
	"github.com/go-vercel/sandbox/observe"
)

// The causes of repairs, in addition to the outcomes of requests.
const (
	causeCut    = "cut"    // the connection broke, or ended before the output did
	causeClosed = "closed" // the service reported that it closes the stream
)

// startRepair reports that the stream has broken and a repair starts.
func (r *Reader) startRepair(cause error) {
	if !r.cmd.Client.Observed() || r.repair != nil || !r.opened {
		return // a repair is in progress, or no stream was open
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
	_, span := r.cmd.Client.Begin(r.ctx, e)
	r.repair = &span
}

// finishRepair reports the end of a repair: the log is open again, or the repair failed with
// err.
func (r *Reader) finishRepair(err error) {
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
