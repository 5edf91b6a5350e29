package testkit

import (
	"go.uber.org/goleak"

	"github.com/go-vercel/sandbox/internal/needs"
)

// Main runs the tests of a package, several to a core, and fails them when a
// goroutine is left. It is called by TestMain.
func Main(m goleak.TestingM) {
	needs.Overlap()
	goleak.VerifyTestMain(m)
}
