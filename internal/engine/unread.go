package engine

import (
	"sync"
	"time"
)

// Unread ends a command that keeps writing output without a reader: as by a local
// pipe it is sent SIGPIPE at once, then SIGTERM, and at last it is killed.
type Unread struct {
	// Signal sends a signal to the command.
	Signal func(sig int)

	since time.Time
	sent  int
	sends sync.WaitGroup
}

var unreadSteps = [...]struct {
	sig   int
	after time.Duration
}{{13, 0}, {15, time.Second}, {9, 5 * time.Second}}

// Output is called for each piece of output without a reader.
func (u *Unread) Output() {
	if u.sent == 0 {
		u.since = time.Now()
	}
	if u.sent == len(unreadSteps) || time.Since(u.since) < unreadSteps[u.sent].after {
		return
	}
	sig := unreadSteps[u.sent].sig
	u.sent++
	u.sends.Go(func() { u.Signal(sig) }) // what comes next shows whether it helped
}

// Wait waits for the signals that are on their way.
func (u *Unread) Wait() { u.sends.Wait() }
