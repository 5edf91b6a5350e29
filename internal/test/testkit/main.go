package testkit

import (
	"go.uber.org/goleak"

	"github.com/go-vercel/sandbox/internal/test/needs"
	"github.com/go-vercel/sandbox/internal/test/testmain"
)

// Main runs the tests of a package, several per core. The run fails if a test leaks a
// goroutine. TestMain calls it.
func Main(m goleak.TestingM) {
	needs.Overlap()
	testmain.Main(m)
}
