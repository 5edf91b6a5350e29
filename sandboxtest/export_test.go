package sandboxtest

import (
	"slices"
	"time"
)

// Freeze stops the machine's clock for the server: only Advance moves its time
// on, however slow the machine is.
func (s *Server) Freeze() {
	s.store.Clock.Replace(func(before func() time.Time) func() time.Time {
		at := before()
		return func() time.Time { return at }
	})
}

// Due counts what is to happen within d.
func (s *Server) Due(d time.Duration) int { return s.store.Clock.Due(d) }

// Operations are those with a route.
func Operations() (names []string) {
	for _, e := range endpoints {
		names = append(names, string(e.op))
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Tick makes d pass at each look at the clock.
func (s *Server) Tick(d time.Duration) {
	s.store.Clock.Replace(func(func() time.Time) func() time.Time {
		var looks time.Duration
		return func() time.Time { looks += d; return time.Now().Add(looks) }
	})
}
