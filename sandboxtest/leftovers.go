package sandboxtest

import (
	"slices"
	"testing"

	"github.com/go-vercel/sandbox/sandboxtest/internal/store"
)

// CheckClosed fails a test for each sandbox that still has a session. On the platform
// such a sandbox would run, and be billed, until it times out: the program has forgotten
// Close, Stop or Delete. Call it when the program under test has ended.
func (s *Server) CheckClosed(t testing.TB) {
	t.Helper()
	var live []string
	for _, sb := range s.store.ListSandboxes("") {
		if sb.Status == store.StatusRunning {
			live = append(live, sb.Name)
		}
	}
	slices.Sort(live)
	for _, name := range live {
		t.Errorf("the sandbox %q still runs", name)
	}
}
