package otelsandbox

import (
	"maps"
	"sync"
	"sync/atomic"

	"github.com/go-vercel/sandbox/observe"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// labels distinguish the time series of a metric. Each has few values, and is empty if it has no
// meaning for the metric. The struct is small, because larger keys make a map slower.
type labels struct {
	operation, outcome, cause, direction string
	host, path                           string // of a request; its operation determines its method
	status                               int
}

// series contains the attributes of a time series as options of the instruments. It is cached
// because sorting and hashing the attributes costs more than counting.
type series struct {
	add    []metric.AddOption
	record []metric.RecordOption
}

func newSeries(list []attribute.KeyValue) *series {
	o := metric.WithAttributeSet(attribute.NewSet(list...))
	return &series{[]metric.AddOption{o}, []metric.RecordOption{o}}
}

// maxKnown limits the size of a cache, because a server can invent statuses.
const maxKnown = 1000

// cache caches a value per key. It is read without a lock and copied for each new key. A sync.Map
// would allocate at each lookup.
type cache[K comparable, V any] struct {
	mu    sync.Mutex
	known atomic.Pointer[map[K]V]
}

func (c *cache[K, V]) get(key K, make func() V) V {
	if known := c.known.Load(); known != nil {
		if v, ok := (*known)[key]; ok {
			return v
		}
	}
	v := make()
	c.mu.Lock()
	defer c.mu.Unlock()
	next := map[K]V{}
	if known := c.known.Load(); known != nil {
		if len(*known) >= maxKnown {
			return v
		}
		next = maps.Clone(*known)
	}
	next[key] = v
	c.known.Store(&next)
	return v
}

// seriesOf returns the series for an event's labels and the user's attributes, if any.
func (x *metrics) seriesOf(l labels, e *observe.Event, extra []attribute.KeyValue) *series {
	if extra != nil {
		return newSeries(append(extra, l.attributes(e)...)) // the last one of equal keys counts
	}
	return x.series.get(l, func() *series { return newSeries(l.attributes(e)) })
}

func (l *labels) attributes(e *observe.Event) []attribute.KeyValue {
	if l.host == "" {
		return appendStrings(nil, "sandbox.operation", l.operation, "sandbox.outcome", l.outcome, "sandbox.cause", l.cause, "sandbox.direction", l.direction)
	}
	list := appendStrings(httpAttributes(e.Method, e.Path, e.Host), "error.type", l.outcome)
	if l.status != 0 {
		list = append(list, attribute.Int("http.response.status_code", l.status))
	}
	return list
}

// durationLabels returns the labels for the duration of an event.
func durationLabels(e *observe.Event) labels {
	l := labels{operation: e.Operation, outcome: e.Outcome}
	if e.Kind != observe.Operation { // the cause of an operation describes a retry, which sandbox.retries counts
		l.cause = e.Cause
	}
	return l
}

// requestLabels returns the labels for a request.
func requestLabels(e *observe.Event) labels {
	return labels{operation: e.Operation, outcome: errorType(e), host: e.Host, path: e.Path, status: e.Status}
}
