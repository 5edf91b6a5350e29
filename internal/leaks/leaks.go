// Package leaks fails tests that leave goroutines behind.
package leaks

import (
	"fmt"
	"os"
	"time"

	"go.uber.org/goleak"
)

// patience is how long goroutines may take to end after the last test. goleak
// itself waits for half a second, in which a busy machine may not have ended the
// processes that they wait for.
const patience = time.Minute

// Main runs the tests of a package, and fails if they leave a goroutine behind.
// TestMain calls it; it does not return.
func Main(m goleak.TestingM) {
	code := m.Run()
	if code == 0 {
		if err := find(); err != nil {
			fmt.Fprintln(os.Stderr, "goleak:", err)
			code = 1
		}
	}
	os.Exit(code)
}

func find() error {
	err := goleak.Find()
	for begin := time.Now(); err != nil && time.Since(begin) < patience; {
		err = goleak.Find()
	}
	return err
}
