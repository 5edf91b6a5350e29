package sandboxtest

import "time"

// Freeze stops the machine's clock for the server: only Advance moves its time
// on, however slow the machine is.
func (s *Server) Freeze() {
	c := s.clock
	c.mu.Lock()
	defer c.mu.Unlock()
	at := c.now()
	c.now = func() time.Time { return at }
}

// Due counts what is to happen within d.
func (s *Server) Due(d time.Duration) (n int) {
	c := s.clock
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, t := range c.timers {
		if !t.at.After(c.nowLocked().Add(d)) {
			n++
		}
	}
	return n
}
