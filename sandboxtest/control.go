package sandboxtest

import (
	"errors"
	"io"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-vercel/sandbox/sandboxtest/internal/reply"
)

// controlPath is the path of the control API, next to the API of sandboxes.
const controlPath = "/control/v1"

// ControlURL is the address of the control API. Programs in any language can use it for
// what Go tests do with methods of the server. It accepts only Options.ControlToken;
// docs/testing.md describes it. It is empty without that token.
func (s *Server) ControlURL() string {
	if s.opts.ControlToken == "" {
		return ""
	}
	return "http://" + s.address() + controlPath
}

// controlRoutes are the operations of the control API. They return the JSON of the
// response, or nil if there is none.
var controlRoutes = map[string]func(*Server, *http.Request) (any, error){
	"GET /requests":  (*Server).controlRequests,
	"GET /clock":     (*Server).controlClock,
	"POST /clock":    (*Server).controlAdvance,
	"POST /faults":   (*Server).controlInject,
	"DELETE /faults": (*Server).controlClearFaults,
}

// The JSON of the control API.
type (
	controlRequests struct {
		Requests []controlRequest `json:"requests"`
	}
	controlRequest struct {
		Operation  Operation           `json:"operation"`
		Method     string              `json:"method"`
		Path       string              `json:"path"`
		Query      map[string][]string `json:"query"`
		Header     map[string][]string `json:"header"`
		Body       string              `json:"body,omitempty"`
		Status     int                 `json:"status"`
		Start      int64               `json:"start"`
		DurationMs int64               `json:"durationMs"`
	}
	controlClock struct {
		Now int64 `json:"now"` // milliseconds since 1970
	}
	controlAdvance struct {
		AdvanceMs int64 `json:"advanceMs"`
	}
)

// controlFaultParams is a [Fault] in the JSON of the control API.
type controlFaultParams struct {
	Operation Operation `json:"operation,omitempty"`
	// Path restricts the fault to paths below the base URL that match it, as in
	// [path.Match].
	Path          string  `json:"path,omitempty"`
	Times         int     `json:"times,omitempty"`
	Probability   float64 `json:"probability,omitempty"`
	DelayMs       int64   `json:"delayMs,omitempty"`
	Status        int     `json:"status,omitempty"`
	ActThenStatus int     `json:"actThenStatus,omitempty"`
	Code          string  `json:"code,omitempty"`
	Message       string  `json:"message,omitempty"`
	RetryAfterMs  int64   `json:"retryAfterMs,omitempty"`
	CutAfterBytes int64   `json:"cutAfterBytes,omitempty"`
	CutAfterMs    int64   `json:"cutAfterMs,omitempty"`
	EndCleanly    bool    `json:"endCleanly,omitempty"`
	DropBefore    bool    `json:"dropBefore,omitempty"`
	DropAfter     bool    `json:"dropAfter,omitempty"`
}

// serveControl serves the control API. Its token differs from the API's: a program that
// uses sandboxes can't set the clock, and one that controls the server can't use them.
func (s *Server) serveControl(w http.ResponseWriter, r *http.Request) {
	if s.opts.ControlToken == "" {
		reply.WriteError(w, reply.NotFound("Not found. The control API needs Options.ControlToken."))
		return
	}
	if failure := s.authorizeBy(r, s.opts.ControlToken); failure != nil {
		reply.WriteError(w, failure)
		return
	}
	handle := controlRoutes[r.Method+" "+strings.TrimPrefix(r.URL.Path, controlPath)]
	if handle == nil {
		reply.WriteError(w, reply.NotFound("The control API has no %.20s %.100s.", r.Method, r.URL.Path))
		return
	}
	out, err := handle(s, r)
	switch failure, ok := errors.AsType[*reply.Error](err); {
	case ok:
		reply.WriteError(w, failure)
	case err != nil:
		reply.WriteError(w, reply.Fail(http.StatusInternalServerError, "internal_server_error", "%v", err))
	case out == nil:
		w.WriteHeader(http.StatusNoContent)
	default:
		reply.WriteJSON(w, http.StatusOK, out)
	}
}

// controlBody reads the JSON of a request.
func controlBody(r *http.Request, v any) error {
	data, err := io.ReadAll(http.MaxBytesReader(nil, r.Body, maxJSON))
	if err != nil {
		return bodyError(err)
	}
	return decodeStrict(data, v)
}

func millis(ms int64) time.Duration { return time.Duration(ms) * time.Millisecond }

func (s *Server) controlRequests(r *http.Request) (any, error) {
	after := 0
	if text := r.URL.Query().Get("after"); text != "" {
		var err error
		if after, err = strconv.Atoi(text); err != nil || after < 0 {
			return nil, reply.Invalid("`after` should be a number >= 0.")
		}
	}
	out := controlRequests{Requests: []controlRequest{}}
	all := s.Requests()
	for _, q := range all[min(after, len(all)):] {
		body := strings.ToValidUTF8(string(q.Body), "\uFFFD")
		out.Requests = append(out.Requests, controlRequest{
			q.Operation, q.Method, q.Path, q.Query, q.Header, body, q.Status, q.Start.UnixMilli(), q.Duration.Milliseconds(),
		})
	}
	return out, nil
}

func (s *Server) controlClock(*http.Request) (any, error) {
	return controlClock{s.Now().UnixMilli()}, nil
}

// maxClock is the latest time that the control API sets the clock to.
var maxClock = time.Date(2150, time.January, 1, 0, 0, 0, 0, time.UTC)

func (s *Server) controlAdvance(r *http.Request) (any, error) {
	var p controlAdvance
	if err := controlBody(r, &p); err != nil {
		return nil, err
	}
	// Limit the sum of all calls, too: the clock's offset is a time.Duration, which could
	// overflow.
	if p.AdvanceMs < 0 || p.AdvanceMs > maxClock.Sub(s.Now()).Milliseconds() {
		return nil, reply.Invalid("`advanceMs` should be >= 0, and not lead beyond the year %d.", maxClock.Year())
	}
	s.Advance(millis(p.AdvanceMs))
	return s.controlClock(r)
}

func (s *Server) controlInject(r *http.Request) (any, error) {
	var p controlFaultParams
	if err := controlBody(r, &p); err != nil {
		return nil, err
	}
	if _, err := path.Match(p.Path, ""); err != nil {
		return nil, reply.Invalid("`path` is not a pattern.")
	}
	if p.Operation != "" && !slices.ContainsFunc(endpoints, func(e endpoint) bool { return e.op == p.Operation }) {
		return nil, reply.Invalid("`operation` should be that of a request in GET %s/requests, not %.80q.", controlPath, p.Operation)
	}
	for _, status := range []int{p.Status, p.ActThenStatus} {
		if status != 0 && (status < 200 || status > 599) {
			return nil, reply.Invalid("a status should be between 200 and 599.")
		}
	}
	f := Fault{
		Operation: p.Operation, Times: p.Times, Probability: p.Probability, Delay: millis(p.DelayMs), Status: p.Status,
		ActThenStatus: p.ActThenStatus, Code: p.Code, Message: p.Message, RetryAfter: millis(p.RetryAfterMs),
		CutAfterBytes: p.CutAfterBytes, CutAfter: millis(p.CutAfterMs), EndCleanly: p.EndCleanly, DropBefore: p.DropBefore, DropAfter: p.DropAfter,
	}
	if p.Path != "" {
		f.Match = func(r *http.Request) bool {
			at, _ := apiPath(r)
			ok, _ := path.Match(p.Path, at) // the pattern was checked above
			return ok
		}
	}
	s.faults.inject(f, true)
	return nil, nil
}

func (s *Server) controlClearFaults(*http.Request) (any, error) {
	s.faults.mu.Lock()
	defer s.faults.mu.Unlock()
	s.faults.list = slices.DeleteFunc(s.faults.list, func(in *injected) bool { return in.byControl })
	return nil, nil
}

// Crash simulates the death of the machine of a running sandbox: its processes end, its
// files since the last snapshot are lost, and its session has failed. Callers waiting for a
// command receive the error that the sandbox has stopped, and no exit code. It reports
// whether the sandbox was running.
func (s *Server) Crash(name string) bool { return s.store.Crash(name) }
