package sandboxtest

import (
	"container/heap"
	"sync"
	"time"
)

// clock is the server's time: the machine's, plus what Advance has added. All
// that expires in the emulator hangs on it, so that a test can make a day pass
// at once.
type clock struct {
	mu     sync.Mutex
	now    func() time.Time // the machine's
	offset time.Duration
	timers timerHeap
	wake   *time.Timer
	closed bool
	fires  sync.WaitGroup
}

// timer is a function that the clock calls once its time has come.
type timer struct {
	clock *clock
	at    time.Time
	f     func()
	index int // in the heap, -1 when it is not there
}

func newClock() *clock { return &clock{now: time.Now} }

// Now returns the current time.
func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.nowLocked()
}

func (c *clock) nowLocked() time.Time { return c.now().Add(c.offset).Round(0) }

// Offset is what was added to the machine's time.
func (c *clock) Offset() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.offset
}

// AfterFunc calls f once d has passed, in a goroutine of its own or in that of
// Advance.
func (c *clock) AfterFunc(d time.Duration, f func()) *timer {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := &timer{clock: c, at: c.nowLocked().Add(d), f: f, index: -1}
	if !c.closed {
		heap.Push(&c.timers, t)
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
	if t.index >= 0 {
		heap.Remove(&t.clock.timers, t.index)
	}
}

// Advance moves the time on by d and returns when what became due has run, in
// its order, each at its own time.
func (c *clock) Advance(d time.Duration) {
	c.mu.Lock()
	for d > 0 && !c.closed {
		step := d
		if len(c.timers) > 0 {
			step = min(d, max(0, c.timers[0].at.Sub(c.nowLocked())))
		}
		c.offset += step
		d -= step
		for len(c.timers) > 0 && !c.timers[0].at.After(c.nowLocked()) {
			t := heap.Pop(&c.timers).(*timer)
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
func (c *clock) armLocked() {
	if c.wake != nil {
		c.wake.Stop()
		c.wake = nil
	}
	if c.closed || len(c.timers) == 0 {
		return
	}
	c.wake = time.AfterFunc(max(0, c.timers[0].at.Sub(c.nowLocked())), c.fire)
}

// fire runs what is due, side by side: one slow stop holds up no other.
func (c *clock) fire() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for !c.closed && len(c.timers) > 0 && !c.timers[0].at.After(c.nowLocked()) {
		t := heap.Pop(&c.timers).(*timer)
		c.fires.Go(t.f)
	}
	c.armLocked()
}

// Close drops the timers and waits for those that are running.
func (c *clock) Close() {
	c.mu.Lock()
	c.closed = true
	c.armLocked()
	c.mu.Unlock()
	c.fires.Wait()
}

// timerHeap orders timers by their time.
type timerHeap []*timer

func (h timerHeap) Len() int           { return len(h) }
func (h timerHeap) Less(i, j int) bool { return h[i].at.Before(h[j].at) }
func (h timerHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}
func (h *timerHeap) Push(x any) {
	t := x.(*timer)
	t.index = len(*h)
	*h = append(*h, t)
}
func (h *timerHeap) Pop() any {
	old := *h
	t := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	t.index = -1
	return t
}
