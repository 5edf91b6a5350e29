package embedded

import (
	"context"
	"time"
)

// Forget deletes what is over in sessions at once.
func Forget(ctx context.Context, s *Server, before time.Time) (int, error) {
	return s.forget(ctx, before)
}

// KeepRuns keeps what is over in sessions, for a test that reads it.
func KeepRuns(s *Server) { s.stop() }
