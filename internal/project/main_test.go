package project_test

import (
	"fmt"
	"os"
	"testing"
)

// TestMain runs the tests where the repository begins: they look at its files.
func TestMain(m *testing.M) {
	if err := os.Chdir("../.."); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}
