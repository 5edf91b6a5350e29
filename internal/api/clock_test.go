package api

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

// TestClock: the service's time is known to the second from each response, also
// from one that took minutes, which tells little. That it is earlier is believed if
// two responses in a row say so, and never if a cache has kept them; and nothing is
// known after the machine was suspended. When a second of it has passed is told no
// earlier.
func TestClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &clock{base: time.Now()}
		ours := func(when string) {
			t.Helper()
			assert.Equal(t, time.Now(), c.now(), when)
			assert.Equal(t, 3*time.Second, time.Until(c.passed(time.Now().Add(2*time.Second))), when)
		}
		ours("before the first response")
		ahead := 30 * time.Minute
		answer := func(after, took time.Duration) {
			sent := time.Now()
			time.Sleep(after)
			date := time.Now().Add(ahead).UTC().Format(http.TimeFormat)
			time.Sleep(took)
			c.note(http.Header{"Date": {date}}, sent)
		}
		check := func(what string) {
			t.Helper()
			off := time.Now().Add(ahead).Sub(c.now())
			assert.True(t, off >= 0 && off <= 1500*time.Millisecond, "%s: %v", what, off)
			second := time.Now().Add(ahead).Truncate(time.Second)
			late := c.passed(second).Sub(second.Add(time.Second - ahead))
			assert.True(t, late >= 0 && late <= 1500*time.Millisecond, "%s: %v", what, late)
		}
		answer(0, 100*time.Millisecond)
		check("first")
		time.Sleep(time.Hour)
		check("an hour later")
		answer(0, 10*time.Minute)
		check("a Date as old as its request")
		answer(10*time.Minute, 0)
		check("one that was waited for")
		for _, ahead = range []time.Duration{-30 * time.Minute, 0, 2 * time.Hour} {
			answer(0, time.Millisecond)
			answer(0, time.Millisecond)
			check("set")
		}
		c.note(http.Header{"Date": {"yesterday"}}, time.Now())
		check("no Date")
		c.note(http.Header{"Date": {time.Now().UTC().Format(http.TimeFormat)}}, time.Now())
		check("one response that disagrees")
		answer(0, time.Millisecond)
		c.note(http.Header{"Date": {time.Now().UTC().Format(http.TimeFormat)}}, time.Now())
		check("another one, after one that agrees")
		for range 3 {
			c.note(http.Header{"Date": {time.Now().UTC().Format(http.TimeFormat)}, "Age": {"7200"}}, time.Now())
		}
		check("those of a cache")

		c.slept -= time.Minute // as if the time of day had run ahead since
		ours("after a suspension")
		answer(0, time.Millisecond)
		check("after a suspension")
	})
}
