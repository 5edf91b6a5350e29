package session

import (
	"bytes"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/go-vercel/sandbox/durable"
)

// bounds are those of the buckets of times, in seconds. A route responds within
// the last.
var bounds = []float64{0.005, 0.02, 0.1, 0.5, 2, 10}

// metrics counts what a handler does, by route and status. No ID is among its
// labels, and a path that is not a route is "other", so that requests of strangers
// can't make it grow.
type metrics struct {
	started, open, broken atomic.Int64

	mu     sync.Mutex
	routes map[string]*routeMetrics
}

// routeMetrics are those of a route.
type routeMetrics struct {
	statuses map[int]int64
	buckets  []int64 // by bounds, each without those before it
	seconds  float64
}

// otherRoute is the label of requests that no route serves.
const otherRoute = "other"

func newMetrics(patterns []string) *metrics {
	m := &metrics{routes: map[string]*routeMetrics{}}
	for _, route := range append(patterns, otherRoute) {
		m.routes[route] = &routeMetrics{statuses: map[int]int64{}, buckets: make([]int64, len(bounds))}
	}
	return m
}

// count returns a handler that counts the responses of h, each when it begins:
// streams last.
func (m *metrics) count(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began := time.Now()
		first := &firstStatus{ResponseWriter: w, begun: func(status int) {
			m.add(r.Pattern, status, time.Since(began)) // the mux has set the pattern
		}}
		h.ServeHTTP(first, r)
		first.begin(http.StatusOK) // what an empty response is
	})
}

func (m *metrics) add(pattern string, status int, took time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	route := m.routes[pattern]
	if route == nil {
		route = m.routes[otherRoute]
	}
	route.statuses[status]++
	route.seconds += took.Seconds()
	if i, _ := slices.BinarySearch(bounds, took.Seconds()); i < len(bounds) {
		route.buckets[i]++
	}
}

// text returns the metrics as Prometheus reads them.
func (m *metrics) text() []byte {
	var b bytes.Buffer
	head := func(name, kind, help string) { fmt.Fprintf(&b, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind) }
	for _, v := range []struct {
		name, kind, help string
		value            *atomic.Int64
	}{
		{"sandbox_sessions_started_total", "counter", "Sessions that this process has started by its routes.", &m.started},
		{"sandbox_session_streams", "gauge", "Streams of events that are open.", &m.open},
		{"sandbox_session_streams_broken_total", "counter", "Streams that ended by an error. Their viewers continue them.", &m.broken},
	} {
		head(v.name, v.kind, v.help)
		fmt.Fprintf(&b, "%s %d\n", v.name, v.value.Load())
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	routes := slices.Sorted(maps.Keys(m.routes))
	head("sandbox_session_requests_total", "counter", "Requests by route and status.")
	for _, name := range routes {
		for _, status := range slices.Sorted(maps.Keys(m.routes[name].statuses)) {
			fmt.Fprintf(&b, "sandbox_session_requests_total{route=%q,status=\"%d\"} %d\n", name, status, m.routes[name].statuses[status])
		}
	}
	head("sandbox_session_response_seconds", "histogram", "From a request to the begin of its response.")
	for _, name := range routes {
		r, n, all := m.routes[name], int64(0), int64(0)
		for _, count := range r.statuses {
			all += count
		}
		for i, bound := range bounds {
			n += r.buckets[i]
			fmt.Fprintf(&b, "sandbox_session_response_seconds_bucket{route=%q,le=%q} %d\n", name, strconv.FormatFloat(bound, 'g', -1, 64), n)
		}
		fmt.Fprintf(&b, "sandbox_session_response_seconds_bucket{route=%q,le=\"+Inf\"} %d\n", name, all)
		fmt.Fprintf(&b, "sandbox_session_response_seconds_sum{route=%q} %g\n", name, r.seconds)
		fmt.Fprintf(&b, "sandbox_session_response_seconds_count{route=%q} %d\n", name, all)
	}
	return b.Bytes()
}

// firstStatus tells the status of a response when it begins.
type firstStatus struct {
	http.ResponseWriter
	begun func(status int)
	once  sync.Once
}

func (w *firstStatus) begin(status int) { w.once.Do(func() { w.begun(status) }) }

// WriteHeader implements [http.ResponseWriter].
func (w *firstStatus) WriteHeader(status int) {
	w.begin(status)
	w.ResponseWriter.WriteHeader(status)
}

// Write implements [http.ResponseWriter].
func (w *firstStatus) Write(p []byte) (int, error) {
	w.begin(http.StatusOK)
	return w.ResponseWriter.Write(p)
}

// Unwrap is for [http.ResponseController].
func (w *firstStatus) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// metrics serves them. They are about all sessions, so Authorize decides as for a
// new one.
func (h *handler) metrics(w http.ResponseWriter, r *http.Request) {
	if !h.allowed(w, r, "") {
		return
	}
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	_, _ = w.Write(h.counts.text())
}

// eventsCounter counts the events of the sessions of a worker, for the
// MetricsHandler of its client.
const eventsCounter = "sandbox_session_events"

// countEvent counts an event that happens. One that is replayed counts no second
// time.
func countEvent(ctx workflow.Context, e Event) {
	outcome := e.State + e.Status + string(e.Outcome) // each type has one of them
	if e.Outcome == durable.Exited && e.ExitCode != nil {
		outcome = "ok"
		if *e.ExitCode != 0 {
			outcome = "failed"
		}
	}
	workflow.GetMetricsHandler(ctx).WithTags(map[string]string{"type": e.Type, "outcome": outcome}).Counter(eventsCounter).Inc(1)
}
