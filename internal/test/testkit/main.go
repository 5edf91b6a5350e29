package testkit

import (
	"fmt"
	"os"

	"go.uber.org/goleak"

	"github.com/go-vercel/sandbox/internal/test/needs"
	"github.com/go-vercel/sandbox/internal/test/testmain"
)

// Main runs the tests of a package, several per core. The run fails if a test leaks a
// goroutine. TestMain calls it.
func Main(m goleak.TestingM) {
	needs.Overlap()
	testmain.Main(withShared{m})
}

// withShared closes the shared emulator after the tests.
type withShared struct{ tests goleak.TestingM }

func (m withShared) Run() int {
	code := m.tests.Run()
	shared.Lock()
	defer shared.Unlock()
	if shared.srv != nil {
		if err := shared.srv.Close(); err != nil {
			fmt.Fprintln(os.Stderr, "close the shared emulator:", err)
			code = 1
		}
	}
	return code
}
