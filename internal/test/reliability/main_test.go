package reliability_test

import (
	"os"
	"testing"

	"github.com/go-vercel/sandbox/internal/test/testkit"
)

func TestMain(m *testing.M) {
	if job := os.Getenv(restartEnv); job != "" {
		os.Exit(runOnce(job)) // the separate program of a test
	}
	testkit.Main(m)
}
