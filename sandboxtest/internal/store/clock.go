package store

import (
	"slices"
	"sync"
	"time"

	"github.com/go-vercel/sandbox/sandboxtest/internal/guard"
)

// Clock is the server's time: the machine's, plus what Advance has added. All
// that expires in the emulator hangs on it, so that a test can make a day pass
// at once.
type Clock struct {
	guard  *guard.Guard
	mu     sync.Mutex
	now    func() time.Time // the machine's
	offset time.Duration
	timers []*timer // the next first
	wake   *time.Timer
	closed bool
	fires  sync.WaitGroup
}

// timer is a function that the clock calls once its time has come.
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

// AfterFunc calls f once d has passed, in a goroutine of its own or in that of
// Advance.
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

// Advance moves the time on by d and returns when what became due has run, in
// its order, each at its own time.
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

// armLocked lets the machine's clock wake us for the earliest timer.
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

// fire runs the due timers concurrently: one slow stop delays no other.
func (c *Clock) fire() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for t := c.dueLocked(); t != nil && !c.closed; t = c.dueLocked() {
		c.guard.Go(&c.fires, "running a timer", t.f)
	}
	c.armLocked()
}

// Close drops the timers and waits for the running ones.
func (c *Clock) Close() {
	c.mu.Lock()
	c.closed = true
	c.armLocked()
	c.mu.Unlock()
	c.fires.Wait()
}

// dueLocked takes the next due timer; nil if there is none.
func (c *Clock) dueLocked() *timer {
	if len(c.timers) == 0 || c.timers[0].at.After(c.nowLocked()) {
		return nil
	}
	t := c.timers[0]
	c.timers = slices.Delete(c.timers, 0, 1)
	return t
}

// Replace gives the clock another source of time, for tests. source is told the
// one before.
func (c *Clock) Replace(source func(before func() time.Time) func() time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = source(c.now)
}

// Due counts the timers that end within d, for tests.
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
