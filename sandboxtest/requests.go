package sandboxtest

import (
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"
)

const (
	// keptRequests is how many requests are remembered.
	keptRequests = 10_000
	// keptBody is how much of a JSON body is remembered.
	keptBody = 16 << 10
)

// Request is a request that the server has received.
type Request struct {
	// Operation is the operation, empty if there is none for the request.
	Operation Operation
	Method    string
	// Path is the path below the base URL, escaped.
	Path  string
	Query url.Values
	// Header has the request's headers, with Authorization redacted.
	Header http.Header
	// Body is the first 16 KiB of a JSON body, and nil for other bodies. It may
	// contain what a client has to keep secret.
	Body []byte
	// Status is the status of the response, zero if there is none yet or the
	// connection was dropped before.
	Status int
	// Start is when the request arrived and Duration how long it took, both by
	// the machine's clock; Duration is zero while the request is being handled.
	Start    time.Time
	Duration time.Duration
}

// Requests returns the requests received so far, in order of arrival, including
// those still being handled. It remembers the last 10000.
func (s *Server) Requests() []Request {
	s.requests.mu.Lock()
	defer s.requests.mu.Unlock()
	out := make([]Request, len(s.requests.list))
	for i, r := range s.requests.list {
		out[i] = *r
		out[i].Header = r.Header.Clone()
		out[i].Query = cloneValues(r.Query)
		out[i].Body = slices.Clone(r.Body)
	}
	return out
}

func cloneValues(v url.Values) url.Values { return url.Values(http.Header(v).Clone()) }

// requests holds what Requests returns.
type requests struct {
	mu   sync.Mutex
	list []*Request
}

func (q *requests) begin(r *http.Request, op Operation, path string) *Request {
	rec := &Request{
		Operation: op, Method: r.Method, Path: path, Query: r.URL.Query(),
		Header: r.Header.Clone(), Start: time.Now(),
	}
	if rec.Header.Get("Authorization") != "" {
		rec.Header.Set("Authorization", "<redacted>")
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.list) >= keptRequests {
		q.list = slices.Delete(q.list, 0, keptRequests/10)
	}
	q.list = append(q.list, rec)
	return rec
}

func (q *requests) setBody(rec *Request, data []byte) {
	q.mu.Lock()
	defer q.mu.Unlock()
	rec.Body = slices.Clone(data[:min(len(data), keptBody)])
}

// setStatus records the status before the client can receive it, so that a client with a
// response finds it in Requests.
func (q *requests) setStatus(rec *Request, status int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	rec.Status = status
}

// end completes the record and returns a copy of it.
func (q *requests) end(rec *Request) Request {
	q.mu.Lock()
	defer q.mu.Unlock()
	rec.Duration = time.Since(rec.Start)
	return *rec
}
