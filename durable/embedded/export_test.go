package embedded

import (
	"context"
	"time"
)

// Forget deletes what is over in sessions at once.
func (s *Server) Forget(ctx context.Context, before time.Time) (int, error) {
	return s.forget(ctx, before)
}

// KeepRuns keeps what is over in sessions, for a test that reads it.
func (s *Server) KeepRuns() { s.stop() }
