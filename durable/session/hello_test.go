package session_test

import (
	"os"
	"testing"
)

// TestHello runs the program that docs/durable.md begins with. A test of module devserver
// runs it with a Temporal server and an emulator in the environment.
func TestHello(t *testing.T) {
	if os.Getenv("TEMPORAL_ADDRESS") == "" {
		t.Skip("needs a Temporal server at TEMPORAL_ADDRESS, and an account or sandbox-emulator")
	}
	t.Chdir(t.TempDir())
	Example()
}
