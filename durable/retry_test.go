package durable

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"go.temporal.io/sdk/activity"
)

// TestRetriesDoNotFlood: a thousand sandboxes whose machines are to be started in a long
// outage make no more requests in a minute than the platform takes, and none in step.
func TestRetriesDoNotFlood(t *testing.T) {
	const (
		sandboxes = 1000
		requests  = 3 // of an attempt: the client has retries of its own
		limit     = 1000
	)
	session := Options{Lease: 32 * time.Minute} // by default
	var seconds [30 * 60]int
	for range sandboxes {
		var at time.Duration
		for attempt := int32(1); ; attempt++ {
			at += nextPause(activity.Info{Attempt: attempt, RetryPolicy: retries(session.tryPause())})
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
			assert.Less(t, inSecond, limit/10, "a crowd in minute %d", minute)
		}
		assert.Less(t, n, limit*12/10, "minute %d", minute)
	}
}

// TestRetriesWithinLease: what an outage of a quarter of the lease has not lost, the pause
// after it does not lose: commands begin with half of a lease at least.
func TestRetriesWithinLease(t *testing.T) {
	for _, lease := range []time.Duration{2 * time.Minute, 15 * time.Minute, 32 * time.Minute, 24 * time.Hour} {
		o := Options{Lease: lease}
		assert.LessOrEqual(t, lease/4+o.tryPause(), lease/2, "%v", lease)
	}
}
