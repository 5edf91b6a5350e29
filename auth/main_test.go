package auth_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/go-vercel/sandbox/internal/test/testmain"
)

// TestMain also runs the other processes of TestProcessesRefreshTogether.
func TestMain(m *testing.M) {
	if address := os.Getenv("OIDC_TEST_SERVER"); address != "" {
		if err := refresher(address); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	testmain.Main(m)
}
