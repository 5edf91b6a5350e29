package sandboxtest

import (
	"errors"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// Fault is a failure that the server plays, to see what a client makes of it.
// The zero value does nothing; Delay combines with every other field, and of
// the others one is meant to be set.
type Fault struct {
	// Operation is which requests fail. Empty means all.
	Operation Operation
	// Match narrows it to requests for which it gives true. Nil means all. It
	// is called with the request's body unread, and must leave it so.
	Match func(*http.Request) bool
	// Times is how often the fault strikes. Zero means without end.
	Times int
	// Probability is how likely it is to strike a request that fits, between 0
	// and 1. Zero means always.
	Probability float64

	// Delay is how long the request waits, by the machine's clock, before
	// anything else happens to it.
	Delay time.Duration
	// Status answers with this status instead of acting.
	Status int
	// ActThenStatus acts, and then answers with this status as if it had not:
	// what a gateway does whose backend's answer got lost. A waited command is
	// started and left running.
	ActThenStatus int
	// Code and Message are those of the error body that goes with Status and
	// ActThenStatus. Empty means a fitting one.
	Code, Message string
	// RetryAfter is told in the Retry-After header, in whole seconds rounded
	// up. Zero leaves the header out.
	RetryAfter time.Duration
	// CutAfterBytes breaks the connection once this many bytes of the answer's
	// body have been sent. Zero does not.
	CutAfterBytes int64
	// DropBefore breaks the connection without acting.
	DropBefore bool
	// DropAfter acts and breaks the connection without an answer.
	DropAfter bool
}

// faults are the faults that are in force.
type faults struct {
	mu   sync.Mutex
	list []*injected
}

type injected struct {
	Fault
	left int // -1 is without end
}

// Inject puts a fault in force, and gives a function that takes it back. Of
// several that fit a request the one that was injected first strikes.
func (s *Server) Inject(f Fault) (remove func()) {
	in := &injected{Fault: f, left: f.Times}
	if f.Times <= 0 {
		in.left = -1
	}
	s.faults.mu.Lock()
	defer s.faults.mu.Unlock()
	s.faults.list = append(s.faults.list, in)
	return func() {
		s.faults.mu.Lock()
		defer s.faults.mu.Unlock()
		in.left = 0
	}
}

// take gives the fault that strikes the request, or nil.
func (f *faults) take(op Operation, r *http.Request) *Fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, in := range f.list {
		switch {
		case in.left == 0,
			in.Operation != "" && in.Operation != op,
			in.Match != nil && !in.Match(r),
			in.Probability > 0 && rand.Float64() >= in.Probability:
			continue
		}
		if in.left > 0 {
			in.left--
		}
		return &in.Fault
	}
	return nil
}

// errAnswered unwinds a handler whose answer a fault has replaced.
var errAnswered = errors.New("answered by a fault")

// faultWriter is the http.ResponseWriter of a request that a fault has struck.
type faultWriter struct {
	http.ResponseWriter
	fault *Fault
	sent  int64
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
		w.fault.answer(w.ResponseWriter, w.fault.ActThenStatus)
		panic(errAnswered)
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *faultWriter) Write(p []byte) (int, error) {
	if limit := w.fault.CutAfterBytes; limit > 0 {
		if left := limit - w.sent; int64(len(p)) >= left {
			_, _ = w.ResponseWriter.Write(p[:left]) // it breaks off here in any case
			_ = http.NewResponseController(w.ResponseWriter).Flush()
			panic(http.ErrAbortHandler)
		}
	}
	n, err := w.ResponseWriter.Write(p)
	w.sent += int64(n)
	return n, err
}

// answer writes the fault's error.
func (f *Fault) answer(w http.ResponseWriter, status int) {
	if f.RetryAfter > 0 {
		seconds := (f.RetryAfter + time.Second - 1) / time.Second
		w.Header().Set("Retry-After", strconv.FormatInt(int64(seconds), 10))
	}
	e := &apiError{status: status, code: f.Code, message: f.Message}
	if e.code == "" {
		switch status {
		case http.StatusTooManyRequests:
			e.code = "rate_limited"
		case http.StatusInternalServerError:
			e.code = "internal_server_error"
		default:
			e.code = "injected_fault"
		}
	}
	if e.message == "" {
		e.message = http.StatusText(status)
	}
	writeError(w, e)
}
