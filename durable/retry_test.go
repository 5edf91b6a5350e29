package durable

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"go.temporal.io/sdk/activity"
)

// TestRetriesDoNotFlood: in a long outage, a thousand sandboxes that wake make fewer
// requests a minute than the platform's limit, and not at the same time.
func TestRetriesDoNotFlood(t *testing.T) {
	const (
		sandboxes = 1000
		requests  = 3 // per attempt: the client also retries
		limit     = 1000
	)
	session := Options{Lease: 32 * time.Minute} // the default
	var seconds [30 * 60]int
	for range sandboxes {
		var at time.Duration
		for attempt := int32(1); ; attempt++ {
			at += nextPause(activity.Info{Attempt: attempt, RetryPolicy: retries(session.longestPause())})
			if at >= time.Duration(len(seconds))*time.Second {
				break
			}
			seconds[int(at/time.Second)] += requests
		}
	}
	for minute := 15; minute < 30; minute++ {
		n := 0
		for _, inSecond := range seconds[minute*60 : minute*60+60] {
			n += inSecond
			assert.Less(t, inSecond, limit/10, "too many requests at once in minute %d", minute)
		}
		assert.Less(t, n, limit*12/10, "minute %d", minute)
	}
}

// TestRetriesWithinLease: the pause after an outage of a quarter of the lease loses no
// command, because a command starts with at least half of the lease.
func TestRetriesWithinLease(t *testing.T) {
	for _, lease := range []time.Duration{2 * time.Minute, 15 * time.Minute, 32 * time.Minute, 24 * time.Hour} {
		o := Options{Lease: lease}
		assert.LessOrEqual(t, lease/4+o.longestPause(), lease/2, "%v", lease)
	}
}
