package sandbox_test

import (
	"testing"

	"go.uber.org/goleak"
)

// TestMain fails the run when a goroutine is left.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
