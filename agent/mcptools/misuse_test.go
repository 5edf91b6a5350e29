package mcptools_test

import (
	"testing"

	"github.com/go-vercel/sandbox/agent/mcptools"
	"github.com/go-vercel/sandbox/internal/test/testkit"
)

// TestMisuse: a mistake in a call is an error in one line.
func TestMisuse(t *testing.T) {
	testkit.Exports{
		Dir:    ".",
		Funcs:  map[string]any{"Add": mcptools.Add, "NewServer": mcptools.NewServer},
		Except: map[string]string{"function NewServer": "a nil Implementation, as in mcp.NewServer"},
	}.Misuse(t)
}
