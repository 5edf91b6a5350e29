package otelsandbox

import (
	"context"
	"net"
	"slices"
	"strconv"

	"github.com/go-vercel/sandbox"
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
	// Arguments adds the arguments of commands to their spans, as
	// process.command_args. They may hold secrets.
	Arguments bool
	// MetricAttributes, if not nil, returns attributes that are added to the
	// metrics of an event. Each new value costs a time series of every metric:
	// the names of tenants may be few enough, those of sandboxes are not.
	MetricAttributes func(sandbox.Event) []attribute.KeyValue
}

// New returns an observer that makes spans and metrics. It is safe for concurrent
// use, and several clients may share it. A nil opts means the defaults.
func New(opts *Options) (sandbox.Observer, error) {
	o := &observer{}
	if opts != nil {
		o.opts = *opts
	}
	if o.opts.TracerProvider == nil {
		o.opts.TracerProvider = otel.GetTracerProvider()
	}
	if o.opts.MeterProvider == nil {
		o.opts.MeterProvider = otel.GetMeterProvider()
	}
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
}

// begun is what the context of an event has: its span, and where its request
// goes.
type begun struct {
	span trace.Span
	host string // of a request; empty for other events
}

type begunKey struct{}

// spanless reports whether an event has no span: that of an operation would say
// what those of its requests say.
func spanless(e *sandbox.Event) bool { return e.Kind == sandbox.EventOperation }

// Begin implements [sandbox.Observer].
func (o *observer) Begin(ctx context.Context, e sandbox.Event) context.Context {
	o.metrics.begin(ctx, &e, o.extra(&e))
	if spanless(&e) {
		return ctx
	}
	name, kind := "sandbox "+e.Kind, trace.SpanKindInternal
	if e.Kind == sandbox.EventRequest {
		name, kind = e.Method+" "+e.Path, trace.SpanKindClient
	}
	ctx, span := o.tracer.Start(ctx, name, trace.WithSpanKind(kind), trace.WithTimestamp(e.Start), trace.WithAttributes(first(&e)...))
	return context.WithValue(ctx, begunKey{}, &begun{span, e.Host})
}

// End implements [sandbox.Observer].
func (o *observer) End(ctx context.Context, e sandbox.Event) {
	o.metrics.end(ctx, &e, o.extra(&e))
	if spanless(&e) {
		return
	}
	b, ok := ctx.Value(begunKey{}).(*begun)
	if !ok {
		return
	}
	if b.span.IsRecording() {
		b.span.SetAttributes(last(&e)...)
		if o.opts.Arguments && len(e.Args) > 0 {
			b.span.SetAttributes(attribute.StringSlice("process.command_args", append([]string{e.Program}, e.Args...)))
		}
		if errorType(&e) != "" {
			b.span.SetStatus(codes.Error, e.Outcome)
		}
		if e.Err != nil {
			b.span.RecordError(e.Err)
		}
	}
	b.span.End(trace.WithTimestamp(e.Start.Add(e.Duration)))
}

func (o *observer) extra(e *sandbox.Event) []attribute.KeyValue {
	if o.opts.MetricAttributes == nil {
		return nil
	}
	return slices.Clip(o.opts.MetricAttributes(*e)) // others append to it
}

// errorType returns the value of error.type; it is empty if the event has gone
// well. An exit code is a result.
func errorType(e *sandbox.Event) string {
	switch {
	case e.Kind == sandbox.EventRequest && e.Status >= 400:
		return strconv.Itoa(e.Status)
	case e.Outcome == "ok", e.Outcome == "exit", e.Outcome == "found":
		return ""
	}
	return e.Outcome
}

// first returns the attributes that samplers see.
func first(e *sandbox.Event) []attribute.KeyValue {
	list := append(named(e), httpOf(e)...)
	if e.Kind == sandbox.EventRequest && e.Attempt > 1 {
		list = append(list, attribute.Int("http.request.resend_count", e.Attempt-1))
	}
	return texts(list, "sandbox.cause", e.Cause)
}

// named returns what an event is about.
func named(e *sandbox.Event) []attribute.KeyValue {
	return texts(make([]attribute.KeyValue, 0, 16),
		"sandbox.operation", e.Operation, "sandbox.name", e.Sandbox, "sandbox.session.id", e.Session, "sandbox.command.id", e.Command,
		"sandbox.drive", e.Drive, "sandbox.snapshot.id", e.Snapshot, "process.executable.name", e.Program)
}

// last returns the attributes of what has ended: more may be known of what it is
// about by then.
func last(e *sandbox.Event) []attribute.KeyValue {
	list := named(e)
	number := func(key string, n int64) {
		if n != 0 {
			list = append(list, attribute.Int64(key, n))
		}
	}
	sent, received := "sandbox.sent", "sandbox.received"
	if e.Kind == sandbox.EventRequest {
		sent, received = "http.request.body.size", "http.response.body.size"
		number("http.response.status_code", int64(e.Status))
	} else {
		number("sandbox.attempt", int64(e.Attempt))
	}
	number(sent, e.Sent)
	number(received, e.Received)
	if e.Exited {
		list = append(list, attribute.Int("process.exit.code", e.ExitCode))
	}
	if e.CauseErr != nil {
		list = texts(list, "sandbox.cause.error", e.CauseErr.Error())
	}
	return texts(list, "sandbox.outcome", e.Outcome, "sandbox.request.id", e.RequestID, "error.type", errorType(e))
}

// httpOf returns the attributes of a request, by the conventions, of which metrics
// have the same.
func httpOf(e *sandbox.Event) []attribute.KeyValue {
	if e.Kind != sandbox.EventRequest {
		return nil
	}
	list := texts(make([]attribute.KeyValue, 0, 8), "http.request.method", e.Method, "url.template", e.Path)
	host, port, err := net.SplitHostPort(e.Host)
	if err != nil {
		return texts(list, "server.address", e.Host)
	}
	if n, err := strconv.Atoi(port); err == nil {
		list = append(list, attribute.Int("server.port", n))
	}
	return texts(list, "server.address", host)
}

// texts adds attributes that are not empty.
func texts(list []attribute.KeyValue, pairs ...string) []attribute.KeyValue {
	for pair := range slices.Chunk(pairs, 2) {
		if pair[1] != "" {
			list = append(list, attribute.String(pair[0], pair[1]))
		}
	}
	return list
}
