package sandboxtest

import (
	"cmp"
	"errors"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-vercel/sandbox/sandboxtest/internal/reply"
)

// Fault is a failure that the server simulates. The zero value does nothing.
// Delay can be combined with any other field; only one of the others should be
// set.
type Fault struct {
	// Operation selects the requests that fail. Empty means all.
	Operation Operation
	// Match restricts the fault to requests for which it returns true. Nil
	// means all. It is called before the request's body is read, and must not
	// read it.
	Match func(*http.Request) bool
	// Times is how often the fault occurs. Zero means always.
	Times int
	// Probability is the probability, between 0 and 1, that the fault occurs
	// for a matching request. Zero means always.
	Probability float64

	// Delay is how long the request waits first, by the machine's clock.
	Delay time.Duration
	// Status is returned instead of acting on the request.
	Status int
	// ActThenStatus is returned after acting on the request, like a gateway
	// whose backend's response was lost. A waited command is started and left
	// running.
	ActThenStatus int
	// Code and Message are the error in the body that goes with Status and
	// ActThenStatus. Empty means a suitable one.
	Code, Message string
	// RetryAfter is the Retry-After header, in whole seconds rounded up. Zero
	// omits it.
	RetryAfter time.Duration
	// CutAfterBytes breaks the connection after this many bytes of the response
	// body were sent. Zero means never.
	CutAfterBytes int64
	// CutAfter breaks the connection when the request has lasted that long by
	// the server's clock, as the platform's edge does with streams after about
	// six minutes. A command that the request started continues. Zero means never.
	CutAfter time.Duration
	// EndCleanly ends a response that is cut as if it were whole.
	EndCleanly bool
	// DropBefore breaks the connection without acting.
	DropBefore bool
	// DropAfter acts and breaks the connection without a response.
	DropAfter bool
}

// faults are the active faults.
type faults struct {
	mu   sync.Mutex
	list []*injected
}

type injected struct {
	Fault
	remaining int  // times that it will still occur; -1 means always
	byControl bool // injected by the control API
}

// Inject activates a fault, and returns a function that removes it. If several
// match a request, the one that was injected first occurs.
func (s *Server) Inject(f Fault) (remove func()) {
	in := s.faults.inject(f, false)
	return func() { s.faults.remove(in) }
}

func (f *faults) inject(fault Fault, byControl bool) *injected {
	in := &injected{Fault: fault, remaining: fault.Times, byControl: byControl}
	if fault.Times <= 0 {
		in.remaining = -1
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.list = append(f.list, in)
	return in
}

func (f *faults) remove(in *injected) {
	f.mu.Lock()
	defer f.mu.Unlock()
	in.remaining = 0
}

// next returns the fault that occurs for the request, or nil.
func (f *faults) next(op Operation, r *http.Request) *Fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, in := range f.list {
		switch {
		case in.remaining == 0,
			in.Operation != "" && in.Operation != op,
			in.Match != nil && !in.Match(r),
			in.Probability > 0 && rand.Float64() >= in.Probability:
			continue
		}
		if in.remaining > 0 {
			in.remaining--
		}
		return &in.Fault
	}
	return nil
}

// errResponded unwinds a handler after a fault has replaced its response.
var errResponded = errors.New("replaced by a fault")

// faultWriter is the http.ResponseWriter of a request for which a fault occurs.
type faultWriter struct {
	http.ResponseWriter
	fault *Fault
	sent  int64
	cut   atomic.Bool // CutAfter has passed: nothing more is sent
}

// end breaks the connection of a response that was cut, unless it ends cleanly.
func (w *faultWriter) end() {
	if !w.cut.Load() {
		return
	}
	if !w.fault.EndCleanly {
		panic(http.ErrAbortHandler)
	}
	panic(errResponded)
}

// Unwrap lets http.ResponseController reach the connection.
func (w *faultWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *faultWriter) WriteHeader(status int) {
	switch {
	case w.fault.DropAfter:
		panic(http.ErrAbortHandler)
	case w.fault.ActThenStatus != 0:
		w.Header().Del("Content-Type")
		w.Header().Del("Content-Length")
		w.fault.respond(w.ResponseWriter, w.fault.ActThenStatus)
		panic(errResponded)
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *faultWriter) Write(p []byte) (int, error) {
	if w.cut.Load() {
		return len(p), nil
	}
	if limit := w.fault.CutAfterBytes; limit > 0 {
		if left := limit - w.sent; int64(len(p)) >= left {
			_, _ = w.ResponseWriter.Write(p[:left]) // the connection breaks anyway
			_ = http.NewResponseController(w.ResponseWriter).Flush()
			if w.fault.EndCleanly {
				panic(errResponded)
			}
			panic(http.ErrAbortHandler)
		}
	}
	n, err := w.ResponseWriter.Write(p)
	w.sent += int64(n)
	return n, err
}

// respond writes the fault's error.
func (f *Fault) respond(w http.ResponseWriter, status int) {
	if f.RetryAfter > 0 {
		seconds := (f.RetryAfter + time.Second - 1) / time.Second
		w.Header().Set("Retry-After", strconv.FormatInt(int64(seconds), 10))
	}
	e := &reply.Error{Status: status, Code: f.Code, Message: f.Message}
	if e.Code == "" {
		switch status {
		case http.StatusTooManyRequests:
			e.Code = "rate_limited"
		case http.StatusInternalServerError:
			e.Code = "internal_server_error"
		default:
			e.Code = "injected_fault"
		}
	}
	e.Message = cmp.Or(e.Message, http.StatusText(status))
	reply.WriteError(w, e)
}
