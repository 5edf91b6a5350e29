package api

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

// TestClock: the clock follows the Date of the last response, to within a second and the
// duration of the request. It ignores responses of caches.
func TestClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c clock
		ahead := time.Duration(0)
		check := func(what string, late time.Duration) {
			t.Helper()
			off := time.Now().Add(ahead).Sub(c.now())
			assert.True(t, off >= 0 && off <= late, "%s: %v", what, off)
			second := time.Now().Add(ahead).Truncate(time.Second)
			after := c.endOfSecond(second).Sub(second.Add(time.Second - ahead))
			assert.True(t, after >= 0 && after <= late, "%s: %v", what, after)
		}
		answer := func(took time.Duration) {
			sent := time.Now()
			date := sent.Add(ahead).UTC().Format(http.TimeFormat)
			time.Sleep(took)
			c.update(http.Header{"Date": {date}}, sent)
		}
		check("before the first response", 0)
		for _, ahead = range []time.Duration{30 * time.Minute, -30 * time.Minute, 0, 2*time.Hour + 300*time.Millisecond} {
			answer(100 * time.Millisecond)
			check("after a response", 1100*time.Millisecond)
			time.Sleep(time.Hour)
			check("an hour later", 1100*time.Millisecond)
		}
		c.update(http.Header{"Date": {"yesterday"}}, time.Now())
		c.update(http.Header{}, time.Now())
		c.update(http.Header{"Date": {time.Now().UTC().Format(http.TimeFormat)}, "Age": {"7200"}}, time.Now())
		check("no Date", 1100*time.Millisecond)
	})
}
