package otelsandbox

import (
	"cmp"
	"context"
	"net"
	"net/http"
	"slices"
	"strconv"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/observe"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
)

// Scope is the name of the instrumentation scope of all spans and metrics.
const Scope = "github.com/go-vercel/sandbox/otelsandbox"

// Options are the options of [New]. The zero value is ready to use.
type Options struct {
	// TracerProvider and MeterProvider make the spans and the metrics. Nil means
	// the global ones.
	TracerProvider trace.TracerProvider
	MeterProvider  metric.MeterProvider
	// Arguments adds the arguments of commands to their spans, as process.command_args.
	// They may contain secrets.
	Arguments bool
	// MetricAttributes, if not nil, returns additional attributes for the metrics of an
	// event. Each new value creates a time series of every metric: names of tenants may be
	// few enough, names of sandboxes are not.
	MetricAttributes func(observe.Event) []attribute.KeyValue
}

// New returns an observer that creates spans and metrics. It is safe for concurrent use,
// and several clients may share it. A nil opts means the defaults.
func New(opts *Options) (observe.Observer, error) {
	o := &observer{opts: *cmp.Or(opts, new(Options))}
	o.opts.TracerProvider = cmp.Or(o.opts.TracerProvider, otel.GetTracerProvider())
	o.opts.MeterProvider = cmp.Or(o.opts.MeterProvider, otel.GetMeterProvider())
	version := sandbox.Version()
	o.tracer = o.opts.TracerProvider.Tracer(Scope, trace.WithInstrumentationVersion(version))
	var err error
	o.metrics, err = newMetrics(o.opts.MeterProvider.Meter(Scope, metric.WithInstrumentationVersion(version)))
	return o, err
}

type observer struct {
	opts    Options
	tracer  trace.Tracer
	metrics *metrics
	starts  cache[spanKey, *spanStart]
}

// spanKey identifies the start options that many spans share. Each field has few values.
type spanKey struct {
	kind                  observe.Kind
	operation, path, host string
}

// spanStart contains the name and options to start a span.
type spanStart struct {
	name    string
	options []trace.SpanStartOption
}

func newSpanStart(e *observe.Event) *spanStart {
	list := appendStrings(nil, "sandbox.operation", e.Operation)
	name, kind := "sandbox "+string(e.Kind), trace.SpanKindInternal
	if e.Kind == observe.Tool {
		name = "execute_tool " + e.Operation
		list = append(list, attribute.String("gen_ai.operation.name", "execute_tool"), attribute.String("gen_ai.tool.name", e.Operation), attribute.String("gen_ai.tool.type", "function"))
	}
	if e.Kind == observe.Request {
		name, kind = e.Method+" "+e.Path, trace.SpanKindClient
		list = append(list, httpAttributes(e.Method, e.Path, e.Host)...)
	}
	return &spanStart{name, []trace.SpanStartOption{trace.WithSpanKind(kind), trace.WithAttributes(list...)}}
}

// activeSpan is the context of an event with a span. If the span was dropped, the events within
// the event have the same context.
type activeSpan struct {
	context.Context
	observer *observer
	span     trace.Span
	host     string // the API's host
}

// activeSpanKey is the context key for the activeSpan of an observer. An empty key matches any
// observer's.
type activeSpanKey struct{ *observer }

// Value implements [context.Context].
func (b *activeSpan) Value(key any) any {
	if k, ok := key.(activeSpanKey); ok && (k.observer == nil || k.observer == b.observer) {
		return b
	}
	return b.Context.Value(key)
}

// hasNoSpan reports whether an event gets no span. The span of an operation would only
// repeat what the spans of its requests say.
func hasNoSpan(e *observe.Event) bool { return e.Kind == observe.Operation }

// Begin implements [observe.Observer].
func (o *observer) Begin(ctx context.Context, e observe.Event) context.Context {
	o.metrics.begin(ctx, &e, o.extra(&e))
	if hasNoSpan(&e) {
		return ctx
	}
	// Like a parent-based sampler, don't sample events within an event that is not sampled.
	// Don't ask the sampler, because that costs more than the rest of an event.
	if p, ok := ctx.Value(activeSpanKey{o}).(*activeSpan); ok && !p.span.IsRecording() && trace.SpanContextFromContext(ctx).SpanID() == p.span.SpanContext().SpanID() {
		return ctx
	}
	s := o.starts.get(spanKey{e.Kind, e.Operation, e.Path, e.Host}, func() *spanStart { return newSpanStart(&e) })
	ctx, span := o.tracer.Start(ctx, s.name, s.options...)
	if span.IsRecording() { // build these attributes only if needed
		span.SetAttributes(startAttributes(&e)...)
	}
	return &activeSpan{ctx, o, span, e.Host}
}

// End implements [observe.Observer].
func (o *observer) End(ctx context.Context, e observe.Event) {
	b, ok := ctx.Value(activeSpanKey{o}).(*activeSpan)
	recording := ok && b.span.IsRecording()
	if ok && !recording { // b may belong to an enclosing event
		ctx = b // lets instruments find the span quickly
	}
	o.metrics.end(ctx, &e, o.extra(&e))
	if !recording || hasNoSpan(&e) {
		return
	}
	b.span.SetAttributes(endAttributes(&e)...)
	if o.opts.Arguments && len(e.Args) > 0 {
		b.span.SetAttributes(attribute.StringSlice("process.command_args", append([]string{e.Program}, e.Args...)))
	}
	if errorType(&e) != "" {
		b.span.SetStatus(codes.Error, e.Outcome)
	}
	if e.Err != nil && !isNotFoundResult(&e) {
		b.span.RecordError(e.Err)
	}
	b.span.End()
}

func (o *observer) extra(e *observe.Event) []attribute.KeyValue {
	if o.opts.MetricAttributes == nil {
		return nil
	}
	return slices.Clip(o.opts.MetricAttributes(*e)) // callers append to it
}

// errorType returns the value of error.type, or "" for a success. An exit code is a success.
func errorType(e *observe.Event) string {
	switch {
	case isNotFoundResult(e):
		return ""
	case e.Kind == observe.Request && e.Status >= 400:
		return strconv.Itoa(e.Status)
	case e.Outcome == "ok", e.Outcome == "exit", e.Outcome == "found", e.Outcome == "started":
		return ""
	}
	return e.Outcome
}

// isNotFoundResult reports whether a GET returned "not found". That is a result, not an error.
func isNotFoundResult(e *observe.Event) bool {
	return e.Kind == observe.Request && e.Method == http.MethodGet && e.Status == http.StatusNotFound
}

// startAttributes returns the attributes that are known at the start of an event, in addition to
// those that samplers see.
func startAttributes(e *observe.Event) []attribute.KeyValue {
	list := appendNames(make([]attribute.KeyValue, 0, 8), e)
	if e.Kind == observe.Request && e.Attempt > 1 {
		list = append(list, attribute.Int("http.request.resend_count", e.Attempt-1))
	}
	return appendStrings(list, "sandbox.cause", e.Cause)
}

// appendNames appends the names and IDs of an event.
func appendNames(list []attribute.KeyValue, e *observe.Event) []attribute.KeyValue {
	return appendStrings(list,
		"sandbox.name", e.Sandbox, "sandbox.session.id", e.Session, "sandbox.command.id", e.Command,
		"sandbox.drive", e.Drive, "sandbox.snapshot.id", e.Snapshot, "process.executable.name", e.Program)
}

// endAttributes returns the attributes at the end of an event. It includes names and IDs again,
// because more of them may be known.
func endAttributes(e *observe.Event) []attribute.KeyValue {
	list := appendNames(make([]attribute.KeyValue, 0, 16), e)
	number := func(key string, n int64) {
		if n != 0 {
			list = append(list, attribute.Int64(key, n))
		}
	}
	sent, received := "sandbox.sent", "sandbox.received"
	if e.Kind == observe.Request {
		sent, received = "http.request.body.size", "http.response.body.size"
		number("http.response.status_code", int64(e.Status))
	} else {
		number("sandbox.attempt", int64(e.Attempt))
	}
	number(sent, e.Sent)
	number(received, e.Received)
	if (e.Kind == observe.Command || e.Kind == observe.Wait) && (e.Outcome == "ok" || e.Outcome == "exit") {
		list = append(list, attribute.Int("process.exit.code", e.ExitCode))
	}
	if e.CauseErr != nil {
		list = appendStrings(list, "sandbox.cause.error", e.CauseErr.Error())
	}
	return appendStrings(list, "sandbox.outcome", e.Outcome, "sandbox.request.id", e.RequestID, "error.type", errorType(e))
}

// httpAttributes returns the attributes of a request that the semantic conventions define, for
// spans and metrics.
func httpAttributes(method, path, host string) []attribute.KeyValue {
	list := appendStrings(make([]attribute.KeyValue, 0, 4), "http.request.method", method, "url.template", path)
	address, port, err := net.SplitHostPort(host)
	if err != nil {
		return appendStrings(list, "server.address", host)
	}
	if n, err := strconv.Atoi(port); err == nil {
		list = append(list, attribute.Int("server.port", n))
	}
	return appendStrings(list, "server.address", address)
}

// appendStrings appends the attributes with a value.
func appendStrings(list []attribute.KeyValue, pairs ...string) []attribute.KeyValue {
	for pair := range slices.Chunk(pairs, 2) {
		if pair[1] != "" {
			list = append(list, attribute.String(pair[0], pair[1]))
		}
	}
	return list
}
