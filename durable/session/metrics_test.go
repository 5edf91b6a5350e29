package session

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/history/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"

	"github.com/go-vercel/sandbox/durable/durabletest"
)

// starter is a cluster that starts sessions.
type starter struct{ *cluster }

func (starter) ExecuteWorkflow(context.Context, client.StartWorkflowOptions, any, ...any) (client.WorkflowRun, error) {
	return nil, nil
}

// measured is a handler with metrics and a token.
type measured struct {
	t *testing.T
	h http.Handler
}

func (m measured) ask(ctx context.Context, method, path, body string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequestWithContext(ctx, method, path, strings.NewReader(body))
	r.Header.Set("Authorization", "Bearer right")
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	m.h.ServeHTTP(w, r)
	return w
}

// sample is a line as Prometheus reads it.
var sample = regexp.MustCompile(`^([a-z_]+(?:\{[a-z]+="[^"]*"(?:,[a-z]+="[^"]*")*\})?) ([0-9.e+-]+)$`)

// samples returns what the handler serves, which is well formed.
func (m measured) samples() map[string]float64 {
	w := m.ask(m.t.Context(), "GET", "/metrics", "")
	require.Equal(m.t, http.StatusOK, w.Code)
	require.Equal(m.t, "text/plain; version=0.0.4; charset=utf-8", w.Header().Get("Content-Type"))
	all := map[string]float64{}
	for line := range strings.Lines(w.Body.String()) {
		if strings.HasPrefix(line, "# HELP ") || strings.HasPrefix(line, "# TYPE ") {
			continue
		}
		parts := sample.FindStringSubmatch(strings.TrimSuffix(line, "\n"))
		require.NotNil(m.t, parts, "%q", line)
		require.NotContains(m.t, all, parts[1])
		v, err := strconv.ParseFloat(parts[2], 64)
		require.NoError(m.t, err)
		all[parts[1]] = v
	}
	return all
}

func requests(route string, status int) string {
	return fmt.Sprintf("sandbox_session_requests_total{route=%q,status=\"%d\"}", route, status)
}

// TestMetrics: sessions, streams while they are open and those that broke, and
// requests by route and status.
func TestMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster()
		c.knows(stored{Event: Event{Type: TypeCreated}})
		m := measured{t, New(starter{c}, nil).Handler(&HandlerOptions{Metrics: true, Page: true, Authorize: Token("right")})}
		watching, leave := context.WithCancel(t.Context())
		var streams sync.WaitGroup
		streams.Go(func() { m.ask(watching, "POST", "/start", "") })
		streams.Go(func() { m.ask(t.Context(), "GET", "/events?runId=ses-b", "") })
		synctest.Wait()
		got := m.samples()
		assert.EqualValues(t, 1, got["sandbox_sessions_started_total"])
		assert.EqualValues(t, 2, got["sandbox_session_streams"])
		assert.EqualValues(t, 1, got[requests("POST /start", 200)], "a stream counts when it begins")
		assert.EqualValues(t, 1, got[requests("GET /events", 200)])

		leave()
		synctest.Wait()
		got = m.samples()
		assert.EqualValues(t, 1, got["sandbox_session_streams"])
		assert.EqualValues(t, 0, got["sandbox_session_streams_broken_total"], "the viewer has left")
		c.mu.Lock()
		c.failing = serviceerror.NewUnavailable("nobody listens")
		c.mu.Unlock()
		c.happens(&history.HistoryEvent{EventType: enums.EVENT_TYPE_WORKFLOW_TASK_COMPLETED})
		streams.Wait()
		got = m.samples()
		assert.EqualValues(t, 0, got["sandbox_session_streams"])
		assert.EqualValues(t, 1, got["sandbox_session_streams_broken_total"])

		for _, r := range []struct {
			method, path, body, authorization, route string
			status                                   int
		}{
			{"GET", "/", "", "", "GET /{$}", 200},
			{"GET", "/metrics", "", "Bearer wrong", "GET /metrics", 401},
			{"GET", "/metrics", "", "", "GET /metrics", 401},
			{"POST", "/start", "", "", "POST /start", 401},
			{"POST", "/touch", "{", "Bearer right", "POST /touch", 400},
			{"GET", "/session?runId=ses-a", "", "Bearer right", "GET /session", 503},
			{"GET", "/nowhere", "", "Bearer right", "other", 404},
			{"DELETE", "/destroy", "", "Bearer right", "other", 405},
		} {
			before := m.samples()[requests(r.route, r.status)]
			w := m.ask(t.Context(), r.method, r.path, r.body, "Authorization", r.authorization)
			assert.Equal(t, r.status, w.Code, "%s %s", r.method, r.path)
			assert.EqualValues(t, before+1, m.samples()[requests(r.route, r.status)], "%s %s", r.method, r.path)
			assert.NotContains(t, w.Body.String(), "sandbox_session", "%s %s", r.method, r.path)
		}
		before := m.samples()[requests("other", 403)]
		m.ask(t.Context(), "POST", "/touch", "", "Sec-Fetch-Site", "cross-site")
		assert.EqualValues(t, before+1, m.samples()[requests("other", 403)], "a page of another origin")
	})
}

// TestMetricsTimes: the buckets of a route hold each response once, also one that
// took longer than the last.
func TestMetricsTimes(t *testing.T) {
	m := newMetrics([]string{"GET /session"})
	for _, d := range []time.Duration{0, 5 * time.Millisecond, 6 * time.Millisecond, time.Second, 11 * time.Second} {
		m.add("GET /session", 200, d)
	}
	text := string(m.text())
	for bound, n := range map[string]int{"0.005": 2, "0.02": 3, "0.1": 3, "0.5": 3, "2": 4, "10": 4, "+Inf": 5} {
		assert.Contains(t, text, fmt.Sprintf("sandbox_session_response_seconds_bucket{route=\"GET /session\",le=%q} %d\n", bound, n))
	}
	assert.Contains(t, text, "sandbox_session_response_seconds_count{route=\"GET /session\"} 5\n")
	assert.Contains(t, text, "sandbox_session_response_seconds_sum{route=\"GET /session\"} 12.011\n")
}

// TestMetricsAreBounded: whatever strangers ask for, and however many sessions there
// are, there are as many series as routes and statuses, and no ID is among them.
func TestMetricsAreBounded(t *testing.T) {
	c := newCluster()
	c.knows(stored{Event: Event{Type: TypeCreated}})
	m := measured{t, New(starter{c}, nil).Handler(&HandlerOptions{Metrics: true, Authorize: Token("right")})}
	var series []string
	for i := range 100 {
		id := fmt.Sprintf("ses-%d", i)
		m.ask(t.Context(), "GET", "/session?runId="+id, "")
		m.ask(t.Context(), "GET", "/session?runId="+id, "", "Authorization", "Bearer "+id)
		m.ask(t.Context(), "GET", "/"+id, "")
		m.ask(t.Context(), "BREW"+strconv.Itoa(i), "/session", "")
		m.ask(t.Context(), "POST", "/command", `{"runId":"`+id+`"}`)
		m.samples() // which is a route itself
		got := slices.Sorted(maps.Keys(m.samples()))
		if i == 0 {
			series = got
		}
		require.Equal(t, series, got)
	}
	assert.NotContains(t, strings.Join(series, "\n"), "ses-")
	off := New(starter{c}, nil).Handler(nil)
	assert.Equal(t, http.StatusNotFound, measured{t, off}.ask(t.Context(), "GET", "/metrics", "").Code, "only if asked for")
}

// tally is a client's MetricsHandler that keeps the counts of events.
type tally struct {
	client.MetricsHandler
	mu     *sync.Mutex
	counts map[string]int64
	tags   map[string]string
}

func (m tally) WithTags(tags map[string]string) client.MetricsHandler {
	all := maps.Clone(m.tags)
	maps.Copy(all, tags)
	m.tags = all
	return m
}

func (m tally) Counter(name string) client.MetricsCounter {
	if name != eventsCounter {
		return m.MetricsHandler.Counter(name)
	}
	return increment(func(n int64) {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.counts[m.tags["type"]+" "+m.tags["outcome"]] += n
	})
}

type increment func(int64)

func (f increment) Inc(n int64) { f(n) }

// TestEventsAreCounted: a worker counts what happens in its sessions, by type and
// outcome, with the handler of its client.
func TestEventsAreCounted(t *testing.T) {
	m := tally{MetricsHandler: client.MetricsNopHandler, mu: new(sync.Mutex), counts: map[string]int64{}, tags: map[string]string{}}
	p := newPlay(t, &durabletest.Options{Metrics: m})
	p.send(time.Minute, "a", "true")
	p.send(2*time.Minute, "b", "exit 3")
	p.send(3*time.Minute, "c", "true")
	p.At(20*time.Minute, func() { p.tell(updateDestroy, DestroyOptions{}) })
	events := p.run(Policy{})
	require.NoError(t, p.GetWorkflowError())
	var total int64
	for _, n := range m.counts {
		total += n
	}
	assert.EqualValues(t, len(events), total, "%v", m.counts)
	for what, n := range map[string]int64{
		"created ": 1, "command_start ": 3, "command_end ok": 2, "command_end failed": 1, "status active": 1, "status destroyed": 1, "result destroyed": 1,
	} {
		assert.Equal(t, n, m.counts[what], "%s in %v", what, m.counts)
	}
}
