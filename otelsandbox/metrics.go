package otelsandbox

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/go-vercel/sandbox/observe"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// The boundaries of histograms. Those for requests are from the semantic conventions. Other
// operations may last for hours.
var (
	requestSeconds = []float64{0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10}
	longSeconds    = []float64{0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600, 4 * 3600}
)

// measured are the kinds of events with a histogram of their durations.
var measured = []observe.Kind{
	observe.Operation, observe.Command, observe.Wait, observe.Repair, observe.Resume, observe.Hook,
	observe.Stop, observe.Upload, observe.Download,
	observe.Tool, observe.Take, observe.Terminal, observe.Visit,
}

type metrics struct {
	series        cache[labels, *series]
	commands      sync.Map              // *commandCounts by the attribute.Distinct of the user's attributes
	plainCommands func() *commandCounts // returns the counts without user's attributes
	request       metric.Float64Histogram
	durations     map[observe.Kind]metric.Float64Histogram
	retries       metric.Int64Counter
	io            metric.Int64Counter
	lived, cpu    metric.Float64Counter
	remaining     metric.Int64Gauge
}

func newMetrics(m metric.Meter) (*metrics, error) {
	var errs []error
	seconds := func(name, what string, bounds []float64) metric.Float64Histogram {
		h, err := m.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(what), metric.WithExplicitBucketBoundaries(bounds...))
		errs = append(errs, err)
		return h
	}
	count := func(name, unit, what string) metric.Int64Counter {
		c, err := m.Int64Counter(name, metric.WithUnit(unit), metric.WithDescription(what))
		errs = append(errs, err)
		return c
	}
	total := func(name, what string) metric.Float64Counter {
		c, err := m.Float64Counter(name, metric.WithUnit("s"), metric.WithDescription(what))
		errs = append(errs, err)
		return c
	}
	x := &metrics{
		request:   seconds("http.client.request.duration", "Duration of HTTP requests until the header of the response", requestSeconds),
		durations: map[observe.Kind]metric.Float64Histogram{},
		retries:   count("sandbox.retries", "{request}", "Requests that were sent because an earlier one failed"),
		io:        count("sandbox.transfer.io", "By", "Bytes of uploads and downloads"),
		lived:     total("sandbox.session.lived", "How long sessions have run that this program has stopped"),
		cpu:       total("sandbox.session.cpu", "CPU time of sessions that this program has stopped"),
	}
	x.plainCommands = sync.OnceValue(func() *commandCounts { return x.commandsOf([]attribute.KeyValue{}) })
	for _, kind := range measured {
		x.durations[kind] = seconds("sandbox."+string(kind)+".duration", "Duration of the event "+string(kind), longSeconds)
	}
	_, err := m.Int64ObservableUpDownCounter("sandbox.commands.active", metric.WithUnit("{command}"), metric.WithDescription("Commands that are being started or followed"),
		x.observeCommands(func(c *commandCounts) int64 { return c.active.Load() }))
	errs = append(errs, err)
	_, err = m.Int64ObservableCounter("sandbox.command.output", metric.WithUnit("By"), metric.WithDescription("Output of commands, as delivered"),
		x.observeCommands(func(c *commandCounts) int64 { return c.output.Load() }))
	errs = append(errs, err)
	x.remaining, err = m.Int64Gauge("sandbox.rate_limit.remaining", metric.WithUnit("{request}"), metric.WithDescription("Remaining requests of the rate limit of an operation"))
	return x, errors.Join(append(errs, err)...)
}

// commandCounts counts the commands with the same user attributes. Counting costs an addition,
// because the counters are read only on collection.
type commandCounts struct {
	attributes     attribute.Set
	active, output atomic.Int64
}

func (x *metrics) commandsOf(extra []attribute.KeyValue) *commandCounts {
	if extra == nil {
		return x.plainCommands()
	}
	set := attribute.NewSet(extra...)
	c, _ := x.commands.LoadOrStore(set.Equivalent(), &commandCounts{attributes: set})
	return c.(*commandCounts)
}

// observeCommands returns the callback of an instrument that observes a value of all commands.
func (x *metrics) observeCommands(read func(*commandCounts) int64) metric.Int64ObservableOption {
	return metric.WithInt64Callback(func(_ context.Context, o metric.Int64Observer) error {
		x.commands.Range(func(_, c any) bool {
			o.Observe(read(c.(*commandCounts)), metric.WithAttributeSet(c.(*commandCounts).attributes))
			return true
		})
		return nil
	})
}

func (x *metrics) begin(ctx context.Context, e *observe.Event, extra []attribute.KeyValue) {
	switch e.Kind {
	case observe.Command:
		x.commandsOf(extra).active.Add(1)
	case observe.Request:
		if e.Attempt > 1 {
			x.retries.Add(ctx, 1, x.seriesOf(labels{operation: e.Operation, cause: e.Cause}, e, extra).add...)
		}
	}
}

func (x *metrics) end(ctx context.Context, e *observe.Event, extra []attribute.KeyValue) {
	if e.Kind == observe.Request {
		x.endRequest(ctx, e, extra)
		return
	}
	if h := x.durations[e.Kind]; h != nil && e.Outcome != "started" {
		h.Record(ctx, e.Duration.Seconds(), x.seriesOf(durationLabels(e), e, extra).record...)
	}
	switch e.Kind {
	case observe.Operation:
		if e.RateLimit > 0 {
			x.remaining.Record(ctx, int64(e.RateRemaining), x.seriesOf(labels{operation: e.Operation}, e, extra).record...)
		}
	case observe.Command:
		c := x.commandsOf(extra)
		c.active.Add(-1)
		c.output.Add(e.Received)
	case observe.Upload:
		x.io.Add(ctx, e.Sent, x.seriesOf(labels{direction: string(e.Kind)}, e, extra).add...)
	case observe.Download:
		x.io.Add(ctx, e.Received, x.seriesOf(labels{direction: string(e.Kind)}, e, extra).add...)
	case observe.Stop:
		plain := x.seriesOf(labels{}, e, extra)
		x.lived.Add(ctx, e.Lived.Seconds(), plain.add...)
		x.cpu.Add(ctx, e.CPU.Seconds(), plain.add...)
	}
}

func (x *metrics) endRequest(ctx context.Context, e *observe.Event, extra []attribute.KeyValue) {
	all := x.seriesOf(requestLabels(e), e, extra).record
	duration := e.Latency
	if duration == 0 { // no response
		duration = e.Duration
	}
	x.request.Record(ctx, duration.Seconds(), all...)
}
