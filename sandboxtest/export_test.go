package sandboxtest

import "time"

// Freeze stops the machine's clock for the server: only Advance moves its time, however
// slow the machine is.
func (s *Server) Freeze() {
	s.store.Clock.Replace(func(before func() time.Time) func() time.Time {
		at := before()
		return func() time.Time { return at }
	})
}

// Due counts the timers that are due within d.
func (s *Server) Due(d time.Duration) int { return s.store.Clock.Due(d) }

// Tick makes the server's clock advance by d each time it is read.
func (s *Server) Tick(d time.Duration) {
	s.store.Clock.Replace(func(func() time.Time) func() time.Time {
		var looks time.Duration
		return func() time.Time { looks += d; return time.Now().Add(looks) }
	})
}
