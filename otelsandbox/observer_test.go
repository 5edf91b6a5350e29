package otelsandbox_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"sort"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/agent"
	"github.com/go-vercel/sandbox/internal/test/canned"
	"github.com/go-vercel/sandbox/internal/test/testkit"
	"github.com/go-vercel/sandbox/observe"
	"github.com/go-vercel/sandbox/otelsandbox"
	"github.com/go-vercel/sandbox/pool"
	"github.com/go-vercel/sandbox/preview"
	"github.com/go-vercel/sandbox/sandboxtest"
	"github.com/go-vercel/sandbox/terminal"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
)

// telemetry is an observer with its spans and metrics.
type telemetry struct {
	observe.Observer
	provider *sdktrace.TracerProvider
	spans    *tracetest.InMemoryExporter
	reader   *sdkmetric.ManualReader
}

func newTelemetry(t *testing.T, change func(*otelsandbox.Options)) *telemetry {
	t.Helper()
	x := &telemetry{spans: tracetest.NewInMemoryExporter(), reader: sdkmetric.NewManualReader()}
	x.provider = sdktrace.NewTracerProvider(sdktrace.WithSyncer(x.spans))
	opts := &otelsandbox.Options{TracerProvider: x.provider, MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(x.reader))}
	if change != nil {
		change(opts)
	}
	var err error
	x.Observer, err = otelsandbox.New(opts)
	require.NoError(t, err)
	return x
}

// metric returns the data points of a metric by the given attributes: the count of a histogram,
// the sum of others.
func (x *telemetry) metric(t *testing.T, name string, by ...attribute.Key) map[string]float64 {
	t.Helper()
	var all metricdata.ResourceMetrics
	require.NoError(t, x.reader.Collect(context.Background(), &all))
	got := map[string]float64{}
	add := func(set attribute.Set, n float64) {
		var key []string
		for _, k := range by {
			v, _ := set.Value(k)
			key = append(key, v.String())
		}
		got[strings.Join(key, " ")] += n
	}
	for _, scope := range all.ScopeMetrics {
		assert.Equal(t, otelsandbox.Scope, scope.Scope.Name)
		for _, m := range scope.Metrics {
			if m.Name != name {
				continue
			}
			switch data := m.Data.(type) {
			case metricdata.Histogram[float64]:
				for _, p := range data.DataPoints {
					add(p.Attributes, float64(p.Count))
				}
			case metricdata.Histogram[int64]:
				for _, p := range data.DataPoints {
					add(p.Attributes, float64(p.Sum))
				}
			case metricdata.Gauge[int64]:
				for _, p := range data.DataPoints {
					add(p.Attributes, float64(p.Value))
				}
			case metricdata.Sum[int64]:
				for _, p := range data.DataPoints {
					add(p.Attributes, float64(p.Value))
				}
			case metricdata.Sum[float64]:
				for _, p := range data.DataPoints {
					add(p.Attributes, p.Value)
				}
			default:
				t.Fatalf("%s is a %T", name, data)
			}
		}
	}
	return got
}

// tree returns the spans below the program's span as text, in order of their start.
func (x *telemetry) tree() string {
	spans := x.spans.GetSpans()
	sort.SliceStable(spans, func(i, j int) bool { return spans[i].StartTime.Before(spans[j].StartTime) })
	var text strings.Builder
	var write func(parent trace.SpanID, indent string)
	write = func(parent trace.SpanID, indent string) {
		for _, s := range spans {
			if s.Parent.SpanID() != parent {
				continue
			}
			line := indent + s.Name
			for _, a := range s.Attributes {
				switch a.Key {
				case "http.response.status_code", "http.request.resend_count", "sandbox.cause", "error.type", "process.exit.code":
					line += fmt.Sprintf(" %s=%s", a.Key, a.Value.String())
				}
			}
			fmt.Fprintln(&text, line)
			write(s.SpanContext.SpanID(), indent+"  ")
		}
	}
	write(trace.SpanID{}, "")
	return text.String()
}

// TestTree tests the spans of a command in a stopped sandbox: the resume gets a 503 first, and the
// output is cut twice.
func TestTree(t *testing.T) {
	t.Parallel()
	srv := sandboxtest.New(t, nil)
	x := newTelemetry(t, nil)
	sb, err := testkit.Client(t, srv, sandbox.ClientOptions{
		Observer: x, RetryWait: time.Millisecond,
	}).Create(t.Context(), testkit.Lasting(&sandbox.CreateOptions{Name: "traced"}))
	require.NoError(t, err)
	_, err = sb.Stop(t.Context(), nil)
	require.NoError(t, err)
	x.spans.Reset()

	srv.Inject(sandboxtest.Fault{Operation: sandboxtest.GetSandbox, Times: 1, Status: http.StatusServiceUnavailable})
	srv.Inject(sandboxtest.Fault{Operation: sandboxtest.RunCommand, Match: func(*http.Request) bool { return sb.CurrentSession().Info().Status == sandbox.StatusRunning }, Times: 1, CutAfterBytes: 1500})
	srv.Inject(sandboxtest.Fault{Operation: sandboxtest.CommandLogs, Times: 1, CutAfterBytes: 2500})
	done, err := sb.RunCommand(t.Context(), "seq", []string{"-w", "1000"}, &sandbox.CommandOptions{ID: "ours"})
	require.NoError(t, err)
	const sessions, logs = "POST /v2/sandboxes/sessions/{session}/cmd", "GET /v2/sandboxes/sessions/{session}/cmd/{command}/logs"
	assert.Equal(t, `sandbox command process.exit.code=0
  `+sessions+` http.response.status_code=410 error.type=410
  sandbox resume sandbox.cause=stopped
    GET /v2/sandboxes/{sandbox} http.response.status_code=503 error.type=503
    GET /v2/sandboxes/{sandbox} http.request.resend_count=1 sandbox.cause=busy http.response.status_code=200
  `+sessions+` http.response.status_code=200 error.type=broken
  sandbox repair sandbox.cause=cut
  `+logs+` http.response.status_code=200 error.type=broken
  sandbox repair sandbox.cause=cut
  `+logs+` http.response.status_code=200
  `+logs+` http.response.status_code=200
`, withoutLookups(x.tree()))

	for _, s := range x.spans.GetSpans() {
		if s.Name == "sandbox command" && attr(s, "sandbox.command.id") == "ours" {
			assert.Equal(t, []string{"traced", done.Command.SessionID(), "seq", ""}, []string{attr(s, "sandbox.name"), attr(s, "sandbox.session.id"), attr(s, "process.executable.name"), attr(s, "process.command_args")})
		}
	}
	assert.Equal(t, map[string]float64{"cut": 2}, x.metric(t, "sandbox.repair.duration", "sandbox.cause"))
	assert.Equal(t, float64(1), x.metric(t, "sandbox.resume.duration", "sandbox.cause")["stopped"])
	assert.Equal(t, map[string]float64{"get sandbox busy": 1}, x.metric(t, "sandbox.retries", "sandbox.operation", "sandbox.cause"))
	assert.Equal(t, map[string]float64{"": 0}, x.metric(t, "sandbox.commands.active"))
	assert.Positive(t, x.metric(t, "sandbox.session.lived")[""])
}

// withoutLookups removes lookups of a command whose log has ended from a tree, because their number
// varies.
func withoutLookups(tree string) string {
	var out strings.Builder
	for line := range strings.Lines(tree) {
		if !strings.HasPrefix(line, "  GET /v2/sandboxes/sessions/{session}/cmd/{command} ") {
			out.WriteString(line)
		}
	}
	return out.String()
}

func attr(s tracetest.SpanStub, key attribute.Key) string {
	for _, a := range s.Attributes {
		if a.Key == key {
			return a.Value.String()
		}
	}
	return ""
}

// TestEnds: End without Begin creates no span, an error is recorded if there is one, and a rate
// limit if it was reported.
func TestEnds(t *testing.T) {
	x := newTelemetry(t, nil)
	x.End(t.Context(), observe.Event{Kind: "wait"})
	assert.Empty(t, x.spans.GetSpans())
	for n, err := range []error{nil, errors.New("no")} {
		e := observe.Event{Kind: "wait"}
		ctx := x.Begin(t.Context(), e)
		e.Err = err
		x.End(ctx, e)
		assert.Len(t, x.spans.GetSpans()[n].Events, n)
	}
	for n, operation := range []string{"unreported", "reported"} {
		x.End(t.Context(), observe.Event{Kind: "operation", Operation: operation, RateLimit: 9 * n, RateRemaining: 4})
	}
	assert.Equal(t, map[string]float64{"reported": 4}, x.metric(t, "sandbox.rate_limit.remaining", "sandbox.operation"))
	for _, outcome := range []string{"started", "ok"} { // the duration of a command that only started means nothing
		x.End(t.Context(), observe.Event{Kind: "command", Outcome: outcome})
	}
	assert.Equal(t, map[string]float64{"": 1}, x.metric(t, "sandbox.command.duration"))
}

// TestTwoObservers: two observers of one client end their own spans and have separate metrics.
func TestTwoObservers(t *testing.T) {
	t.Parallel()
	srv := sandboxtest.New(t, nil)
	x, y := newTelemetry(t, nil), newTelemetry(t, nil)
	sb, err := testkit.Client(t, srv, sandbox.ClientOptions{Observer: observe.Multi(x, y)}).Create(t.Context(), testkit.Lasting(nil))
	require.NoError(t, err)
	_, err = sb.RunCommand(t.Context(), "echo", []string{"hello"}, nil)
	require.NoError(t, err)
	for _, each := range []*telemetry{x, y} {
		spans := each.spans.GetSpans()
		assert.Len(t, spansOf(each, "POST", "GET"), len(srv.Requests()))
		ids := map[trace.SpanID]bool{}
		for _, s := range spans {
			ids[s.SpanContext.SpanID()] = true
		}
		assert.Len(t, ids, len(spans), "each span ends once")
		assert.Equal(t, map[string]float64{"": 6}, each.metric(t, "sandbox.command.output"))
	}
}

// TestMetricsAddUp: over a thousand random operations, the metrics count exactly the requests,
// retries and commands that the emulator has seen.
func TestMetricsAddUp(t *testing.T) {
	t.Parallel()
	seed := testkit.Seed(t)
	chance := rand.New(rand.NewPCG(seed, 0))
	srv := sandboxtest.New(t, nil)
	x := newTelemetry(t, nil)
	client := testkit.Client(t, srv, sandbox.ClientOptions{Observer: x, MaxRetries: 20, RetryWait: time.Microsecond})
	ctx := t.Context()
	sb, err := client.Create(ctx, testkit.Lasting(nil))
	require.NoError(t, err)
	var mu sync.Mutex
	srv.Inject(sandboxtest.Fault{Status: http.StatusServiceUnavailable, Match: func(req *http.Request) bool {
		mu.Lock()
		defer mu.Unlock()
		return req.Method == http.MethodGet && chance.IntN(5) == 0
	}})
	pick := rand.New(rand.NewPCG(seed, 1))
	commands, bytes := 0, 0
	for range 1000 {
		switch pick.IntN(10) {
		case 0:
			n := pick.IntN(1000)
			_, err = sb.RunCommand(ctx, "head", []string{"-c", fmt.Sprint(n), "/dev/zero"}, nil)
			commands++
			bytes += n
		case 1:
			err = sb.FS().WriteFiles(ctx, []sandbox.File{{Path: "f", Content: make([]byte, pick.IntN(1000))}}, nil)
		case 2:
			if _, missing := client.Get(ctx, "nowhere", nil); missing == nil {
				t.Error("Get returned a sandbox that does not exist")
			}
		case 3:
			err = sb.ExtendTimeout(ctx, time.Second)
		case 4:
			_, err = sb.ListCommands(ctx)
		default:
			err = sb.Refresh(ctx)
		}
		require.NoError(t, err)
	}
	want, failed := map[string]float64{}, 0
	requests := srv.Requests()
	for _, r := range requests {
		want[fmt.Sprint(r.Method, " ", r.Status)]++
		if r.Status == http.StatusServiceUnavailable {
			failed++
		}
	}
	assert.Equal(t, want, x.metric(t, "http.client.request.duration", "http.request.method", "http.response.status_code"))
	assert.Positive(t, failed)
	assert.Equal(t, map[string]float64{"busy": float64(failed)}, x.metric(t, "sandbox.retries", "sandbox.cause"))
	assert.Equal(t, map[string]float64{"": float64(len(requests) - failed)}, x.metric(t, "sandbox.operation.duration"))
	assert.Equal(t, map[string]float64{"ok": float64(commands)}, x.metric(t, "sandbox.command.duration", "sandbox.outcome"))
	assert.Equal(t, map[string]float64{"": float64(bytes)}, x.metric(t, "sandbox.command.output"))
	spans := spansOf(x, "GET", "POST")
	assert.Len(t, spans, len(requests))
	var sent, received float64
	for _, s := range spans {
		for _, a := range s.Attributes {
			switch a.Key {
			case "http.request.body.size":
				sent += float64(a.Value.AsInt64())
			case "http.response.body.size":
				received += float64(a.Value.AsInt64())
			}
		}
	}
	assert.Positive(t, sent)
	assert.Positive(t, received)
}

func spansOf(x *telemetry, prefixes ...string) (list []tracetest.SpanStub) {
	for _, s := range x.spans.GetSpans() {
		for _, p := range prefixes {
			if strings.HasPrefix(s.Name, p+" ") {
				list = append(list, s)
			}
		}
	}
	return list
}

// TestCardinality: names and IDs are never attributes of metrics, and arguments are attributes of
// spans only with the option.
func TestCardinality(t *testing.T) {
	t.Parallel()
	srv := sandboxtest.New(t, nil)
	for _, arguments := range []bool{false, true} {
		x := newTelemetry(t, func(o *otelsandbox.Options) {
			o.Arguments = arguments
			o.MetricAttributes = func(observe.Event) []attribute.KeyValue {
				return []attribute.KeyValue{attribute.String("tenant", "one")}
			}
		})
		sb, err := testkit.Client(t, srv, sandbox.ClientOptions{Observer: x}).Create(t.Context(), testkit.Lasting(nil))
		require.NoError(t, err)
		_, err = sb.RunCommand(t.Context(), "echo", []string{"an-argument"}, &sandbox.CommandOptions{ID: fmt.Sprint("the-id-", arguments), Env: sandbox.Env{"KEY": "a-secret-value"}})
		require.NoError(t, err)
		_, err = sb.Stop(t.Context(), nil)
		require.NoError(t, err)
		var all metricdata.ResourceMetrics
		require.NoError(t, x.reader.Collect(t.Context(), &all))
		text := fmt.Sprintf("%+v", all)
		for _, name := range []string{sb.Name(), sb.CurrentSession().ID(), "the-id", "an-argument", "a-secret-value", srv.Credentials().Token} {
			assert.NotContains(t, text, name)
		}
		assert.Equal(t, []string{"one"}, keys(x.metric(t, "sandbox.operation.duration", "tenant")))
		spans := fmt.Sprintf("%+v", x.spans.GetSpans())
		assert.NotContains(t, spans, "a-secret-value")
		assert.NotContains(t, spans, srv.Credentials().Token)
		assert.Equal(t, arguments, strings.Contains(spans, "an-argument"))
		assert.Contains(t, spans, sb.Name())
	}
}

func keys(m map[string]float64) (list []string) {
	for k := range m {
		list = append(list, k)
	}
	return list
}

// TestTraceparent: the context of a span is sent only with the transport, and only to the API, not
// after a redirect to another host.
func TestTraceparent(t *testing.T) {
	t.Parallel()
	elsewhere := make(chan string, 1)
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		elsewhere <- req.Header.Get("Traceparent")
	}))
	defer other.Close()
	srv := sandboxtest.New(t, nil)
	x := newTelemetry(t, nil)
	client := func(hc *http.Client) *sandbox.Client {
		return testkit.Client(t, srv, sandbox.ClientOptions{Observer: x, HTTPClient: hc, MaxRetries: -1})
	}
	// A dropped trace is propagated as not sampled.
	y := newTelemetry(t, func(o *otelsandbox.Options) {
		o.TracerProvider = sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.NeverSample()))
	})
	sb, err := testkit.Client(t, srv, sandbox.ClientOptions{
		Observer: y, HTTPClient: &http.Client{Transport: otelsandbox.Transport(nil, propagation.TraceContext{})},
	}).Create(t.Context(), testkit.Lasting(nil))
	require.NoError(t, err)
	_, err = sb.RunCommand(t.Context(), "true", nil, nil)
	require.NoError(t, err)
	for _, r := range srv.Requests() {
		assert.Regexp(t, "^00-[0-9a-f]{32}-[0-9a-f]{16}-00$", r.Header.Get("Traceparent"))
	}

	for asked, hc := range map[bool]*http.Client{false: nil, true: {Transport: otelsandbox.Transport(nil, propagation.TraceContext{})}} {
		ctx, span := x.provider.Tracer("test").Start(t.Context(), "outer")
		_, err := client(hc).Get(ctx, "nowhere", nil)
		require.ErrorIs(t, err, sandbox.ErrNotFound)
		span.End()
		requests := srv.Requests()
		got := requests[len(requests)-1].Header.Get("Traceparent")
		if !asked {
			assert.Empty(t, got)
			continue
		}
		require.Len(t, strings.Split(got, "-"), 4, got)
		assert.Contains(t, got, span.SpanContext().TraceID().String())
		spans := spansOf(x, "GET")
		assert.Contains(t, got, spans[len(spans)-1].SpanContext.SpanID().String(), "the span of the request")
	}
	hc := &http.Client{Transport: otelsandbox.Transport(redirecting{other.URL}, propagation.TraceContext{})}
	_, err = client(hc).Get(t.Context(), "box", nil)
	require.Error(t, err)
	assert.Empty(t, <-elsewhere)
}

// redirecting redirects GETs of the API to another host.
type redirecting struct{ to string }

func (r redirecting) RoundTrip(req *http.Request) (*http.Response, error) {
	if strings.HasPrefix(r.to, "http://"+req.URL.Host) {
		return http.DefaultTransport.RoundTrip(req)
	}
	resp := canned.JSON(http.StatusFound, "")
	resp.Header.Set("Location", r.to)
	resp.Request = req
	return resp, nil
}

// TestSeries: different attributes, including the user's, give separate time series.
func TestSeries(t *testing.T) {
	t.Parallel()
	x := newTelemetry(t, func(o *otelsandbox.Options) {
		o.MetricAttributes = func(e observe.Event) []attribute.KeyValue {
			if e.Sandbox == "" {
				return nil
			}
			return []attribute.KeyValue{attribute.String("tenant", e.Sandbox)}
		}
	})
	request := observe.Event{Kind: "request", Operation: "create sandbox", Method: "POST", Path: "/v2/sandboxes", Host: "one.test", Status: 200, Outcome: "ok"}
	for _, change := range []func(*observe.Event){
		func(*observe.Event) {}, func(e *observe.Event) { e.Path = "/v3/sandboxes" }, func(e *observe.Event) { e.Host = "two.test:80" },
		func(e *observe.Event) { e.Status = 503 }, func(e *observe.Event) { e.Outcome = "broken" },
	} {
		e := request
		change(&e)
		for range 2 {
			x.End(x.Begin(t.Context(), e), e)
		}
	}
	assert.Equal(t, map[string]float64{
		"/v2/sandboxes one.test 200 ": 2, "/v3/sandboxes one.test 200 ": 2, "/v2/sandboxes two.test 200 ": 2, "/v2/sandboxes one.test 503 503": 2, "/v2/sandboxes one.test 200 broken": 2,
	}, x.metric(t, "http.client.request.duration", "url.template", "server.address", "http.response.status_code", "error.type"))
	for _, name := range []string{"", "a", "b", "b"} {
		e := observe.Event{Kind: "command", Sandbox: name, Outcome: "ok", Received: 5}
		x.Begin(t.Context(), e)
		x.End(x.Begin(t.Context(), e), e)
	}
	assert.Equal(t, map[string]float64{"": 1, "a": 1, "b": 2}, x.metric(t, "sandbox.commands.active", "tenant"))
	assert.Equal(t, map[string]float64{"": 5, "a": 5, "b": 10}, x.metric(t, "sandbox.command.output", "tenant"))
}

// TestProduct: calls of tools, sandboxes of a pool, terminals and visitors have spans and metrics.
// "Not found" is not an error.
func TestProduct(t *testing.T) {
	t.Parallel()
	srv := sandboxtest.New(t, nil)
	x := newTelemetry(t, nil)
	client := testkit.Client(t, srv, sandbox.ClientOptions{Observer: x})
	sb, err := client.GetOrCreate(t.Context(), "product", testkit.Lasting(&sandbox.CreateOptions{Ports: []int{3000}})) // a 404 first
	require.NoError(t, err)

	tools := agent.New(sb, nil)
	defer tools.Close()
	_, err = tools.Call(t.Context(), "bash", []byte(`{"command": "exit 3"}`))
	require.NoError(t, err)
	_, err = tools.Call(t.Context(), "read_file", []byte(`{"path": "nowhere"}`))
	require.NoError(t, err)

	p, err := pool.New(t.Context(), client, pool.Options{Name: "product"})
	require.NoError(t, err)
	box, err := p.Take(t.Context(), "")
	require.NoError(t, err)
	require.NoError(t, box.Delete(t.Context()))
	require.NoError(t, p.Close(t.Context()))

	sh, err := terminal.Open(t.Context(), sb, nil)
	require.NoError(t, err)
	require.NoError(t, sh.Close())

	visitor := &http.Client{Transport: preview.Transport(sb, 3000, &preview.Options{MaxWait: time.Millisecond})}
	_, err = visitor.Get("http://app/") //nolint:bodyclose // there is none
	require.Error(t, err)

	got := map[string]codes.Code{}
	require.Eventually(t, func() bool {
		for _, s := range x.spans.GetSpans() {
			if strings.HasPrefix(s.Name, "execute_tool ") || strings.HasPrefix(s.Name, "sandbox ") {
				got[s.Name] = s.Status.Code
			}
			assert.False(t, attr(s, "http.response.status_code") == "404" && s.Status.Code == codes.Error, "%s %v", s.Name, s.Attributes)
		}
		_, terminal := got["sandbox terminal"] // it ends by itself
		return terminal
	}, testkit.Patience, time.Millisecond)
	for name, code := range map[string]codes.Code{
		"execute_tool bash": codes.Unset, "execute_tool read_file": codes.Unset, "sandbox take": codes.Unset, "sandbox terminal": codes.Unset,
		"sandbox visit": codes.Error,
	} {
		status, ok := got[name]
		assert.True(t, ok, name)
		assert.Equal(t, code, status, name)
	}
	assert.Equal(t, map[string]float64{"bash ok": 1, "read_file exit": 1}, x.metric(t, "sandbox.tool.duration", "sandbox.operation", "sandbox.outcome"))
	assert.Equal(t, map[string]float64{"not listening": 1}, x.metric(t, "sandbox.visit.duration", "sandbox.cause"))
	for _, name := range []string{"sandbox.take.duration", "sandbox.terminal.duration"} {
		assert.Len(t, x.metric(t, name, "sandbox.outcome"), 1, name)
	}
}
