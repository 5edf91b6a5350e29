package session

import (
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"

	"github.com/go-vercel/sandbox/durable/durabletest"
)

// countingMetrics is a MetricsHandler that counts events.
type countingMetrics struct {
	client.MetricsHandler
	mu     *sync.Mutex
	counts map[string]int64
	tags   map[string]string
}

func (m countingMetrics) WithTags(tags map[string]string) client.MetricsHandler {
	all := maps.Clone(m.tags)
	maps.Copy(all, tags)
	m.tags = all
	return m
}

func (m countingMetrics) Counter(name string) client.MetricsCounter {
	if name != eventsCounter {
		return m.MetricsHandler.Counter(name)
	}
	return counterFunc(func(n int64) {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.counts[m.tags["type"]+" "+m.tags["outcome"]] += n
	})
}

type counterFunc func(int64)

func (f counterFunc) Inc(n int64) { f(n) }

// TestEventsAreCounted: a worker counts the events of its sessions by type and outcome.
func TestEventsAreCounted(t *testing.T) {
	m := countingMetrics{MetricsHandler: client.MetricsNopHandler, mu: new(sync.Mutex), counts: map[string]int64{}, tags: map[string]string{}}
	p := newTestSession(t, &durabletest.Options{Metrics: m})
	p.send(time.Minute, "a", "true")
	p.send(2*time.Minute, "b", "exit 3")
	p.send(3*time.Minute, "c", "true")
	p.At(20*time.Minute, func() { p.sendUpdate(updateDestroy, DestroyOptions{}) })
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
