package anthropictools_test

import (
	"testing"

	"github.com/go-vercel/sandbox/agent/anthropictools"
	"github.com/go-vercel/sandbox/internal/test/testkit"
)

// TestMisuse: a mistake in a call is an error in one line.
func TestMisuse(t *testing.T) {
	testkit.Exports{
		Dir:   ".",
		Funcs: map[string]any{"Run": anthropictools.Run, "Tools": anthropictools.Tools},
	}.Misuse(t)
}
