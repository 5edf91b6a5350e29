package otelsandbox

import (
	"maps"
	"sync"
	"sync/atomic"

	"github.com/go-vercel/sandbox/observe"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// labels are what tells the time series of a metric apart, each one of few words.
// What has no meaning for a metric is empty. A map with longer keys is slower.
type labels struct {
	operation, outcome, cause, direction string
	host, path                           string // of a request, whose method follows from its operation
	status                               int
}

// series has the attributes of a time series as the options that the instruments
// take: to sort and hash them costs more than to count.
type series struct {
	add    []metric.AddOption
	record []metric.RecordOption
}

func newSeries(list []attribute.KeyValue) *series {
	o := metric.WithAttributeSet(attribute.NewSet(list...))
	return &series{[]metric.AddOption{o}, []metric.RecordOption{o}}
}

// maxKnown bounds what a cache keeps: a server can make up statuses.
const maxKnown = 1000

// cache keeps what was made for a key. It is read without a lock, and copied for
// each new key. A sync.Map would allocate for each key that is looked up.
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

// seriesOf returns the series of an event's labels and, if the user adds some, of
// those.
func (x *metrics) seriesOf(l labels, e *observe.Event, extra []attribute.KeyValue) *series {
	if extra != nil {
		return newSeries(append(extra, l.attributes(e)...)) // of equal keys the last one counts
	}
	return x.series.get(l, func() *series { return newSeries(l.attributes(e)) })
}

func (l *labels) attributes(e *observe.Event) []attribute.KeyValue {
	if l.host == "" {
		return texts(nil, "sandbox.operation", l.operation, "sandbox.outcome", l.outcome, "sandbox.cause", l.cause, "sandbox.direction", l.direction)
	}
	list := texts(httpOf(e.Method, e.Path, e.Host), "error.type", l.outcome)
	if l.status != 0 {
		list = append(list, attribute.Int("http.response.status_code", l.status))
	}
	return list
}

// durationOf are the labels of the duration of an event.
func durationOf(e *observe.Event) labels {
	l := labels{operation: e.Operation, outcome: e.Outcome}
	if e.Kind != observe.Operation { // retries are counted
		l.cause = e.Cause
	}
	return l
}

// requestOf are the labels of a request.
func requestOf(e *observe.Event) labels {
	return labels{operation: e.Operation, outcome: errorType(e), host: e.Host, path: e.Path, status: e.Status}
}
