// Package client_test tests package sandbox from outside, as its users see it.
package client_test

import (
	"testing"

	"github.com/go-vercel/sandbox/internal/test/testkit"
)

// TestMain fails the run when a goroutine is leaked.
func TestMain(m *testing.M) { testkit.Main(m) }
