package store

import (
	"slices"
	"sync"
	"time"

	"github.com/go-vercel/sandbox/sandboxtest/internal/guard"
)

// Clock is the server's time: the machine's, plus what Advance has added. Everything that
// expires in the emulator uses it, so that a test can make a day pass at once.
type Clock struct {
	guard  *guard.Guard
	mu     sync.Mutex
	now    func() time.Time // the machine's
	offset time.Duration
	timers []*timer    // the earliest first
	wake   *time.Timer // of the machine, for the earliest timer
	closed bool
	fires  sync.WaitGroup // the timers that are running
}

// timer is a function that the clock calls at a time.
type timer struct {
	clock *Clock
	at    time.Time
	f     func()
}

func newClock(guard *guard.Guard) *Clock { return &Clock{now: time.Now, guard: guard} }

// Now returns the current time.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.nowLocked()
}

func (c *Clock) nowLocked() time.Time { return c.now().Add(c.offset).Round(0) }

// Offset returns how much the clock is ahead of the machine's.
func (c *Clock) Offset() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.offset
}

// AfterFunc calls f once d has passed, in a new goroutine or in that of Advance.
func (c *Clock) AfterFunc(d time.Duration, f func()) *timer {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := &timer{clock: c, at: c.nowLocked().Add(d), f: f}
	if !c.closed {
		i, _ := slices.BinarySearchFunc(c.timers, t.at, func(other *timer, at time.Time) int {
			if other.at.After(at) {
				return 1
			}
			return -1
		})
		c.timers = slices.Insert(c.timers, i, t)
		c.armLocked()
	}
	return t
}

// Stop keeps the timer from firing. It does nothing on nil and on a timer that
// has fired.
func (t *timer) Stop() {
	if t == nil {
		return
	}
	t.clock.mu.Lock()
	defer t.clock.mu.Unlock()
	t.clock.timers = slices.DeleteFunc(t.clock.timers, func(other *timer) bool { return other == t })
}

// Advance moves the time forward by d. It returns when the due timers have run, in order,
// each at its own time.
func (c *Clock) Advance(d time.Duration) {
	c.mu.Lock()
	for d > 0 && !c.closed {
		step := d
		if len(c.timers) > 0 {
			step = min(d, max(0, c.timers[0].at.Sub(c.nowLocked())))
		}
		c.offset += step
		d -= step
		for t := c.dueLocked(); t != nil; t = c.dueLocked() {
			c.fires.Add(1)
			c.mu.Unlock()
			t.f()
			c.fires.Done()
			c.mu.Lock()
		}
	}
	c.armLocked()
	c.mu.Unlock()
}

// armLocked sets the machine's timer for the earliest timer.
func (c *Clock) armLocked() {
	if c.wake != nil {
		c.wake.Stop()
		c.wake = nil
	}
	if c.closed || len(c.timers) == 0 {
		return
	}
	c.wake = time.AfterFunc(max(0, c.timers[0].at.Sub(c.nowLocked())), c.fire)
}

// fire runs the due timers concurrently, so that a slow stop of one session does not delay
// others.
func (c *Clock) fire() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for t := c.dueLocked(); t != nil && !c.closed; t = c.dueLocked() {
		c.guard.Go(&c.fires, "running a timer", t.f)
	}
	c.armLocked()
}

// Close keeps further timers from running, and waits for the running ones.
func (c *Clock) Close() {
	c.mu.Lock()
	c.closed = true
	c.armLocked()
	c.mu.Unlock()
	c.fires.Wait()
}

// dueLocked removes and returns the next due timer, or nil.
func (c *Clock) dueLocked() *timer {
	if len(c.timers) == 0 || c.timers[0].at.After(c.nowLocked()) {
		return nil
	}
	t := c.timers[0]
	c.timers = slices.Delete(c.timers, 0, 1)
	return t
}

// Replace sets another source of time, for tests. source receives the previous one.
func (c *Clock) Replace(source func(before func() time.Time) func() time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = source(c.now)
}

// Due counts the timers that are due within d, for tests.
func (c *Clock) Due(d time.Duration) (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, t := range c.timers {
		if !t.at.After(c.nowLocked().Add(d)) {
			n++
		}
	}
	return n
}
