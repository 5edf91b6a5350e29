package sandboxtest

import (
	"slices"
	"testing"
)

// CheckClosed fails a test for each sandbox that still has a session, which on
// the platform would run, and be billed, until it times out: something has
// forgotten Close, Stop or Delete. Call it when the program under test has ended.
func (s *Server) CheckClosed(t testing.TB) {
	t.Helper()
	st := s.store
	st.mu.Lock()
	var live []string
	for _, sb := range st.sandboxes {
		if sb.current != nil && sb.current.liveLocked() {
			live = append(live, sb.key.name)
		}
	}
	st.mu.Unlock()
	slices.Sort(live)
	for _, name := range live {
		t.Errorf("the sandbox %q still runs", name)
	}
}
