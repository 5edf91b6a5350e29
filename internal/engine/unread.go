package engine

import (
	"sync"
	"time"
)

// Unread ends a command that writes output without a reader. It sends SIGPIPE at once, as a
// local pipe does, then SIGTERM, and finally SIGKILL.
type Unread struct {
	// Signal sends a signal to the command.
	Signal func(sig int)

	firstOutput time.Time
	sent        int
	sends       sync.WaitGroup
}

var unreadSignals = [...]struct {
	sig   int
	after time.Duration
}{{13, 0}, {15, time.Second}, {9, 5 * time.Second}}

// Output is called for each piece of output without a reader.
func (u *Unread) Output() {
	if u.sent == 0 {
		u.firstOutput = time.Now()
	}
	if u.sent == len(unreadSignals) || time.Since(u.firstOutput) < unreadSignals[u.sent].after {
		return
	}
	sig := unreadSignals[u.sent].sig
	u.sent++
	u.sends.Go(func() { u.Signal(sig) }) // if the command continues, its further output sends the next signal
}

// Wait waits for the signals in flight.
func (u *Unread) Wait() { u.sends.Wait() }
