package otelsandbox_test

import (
	"testing"

	"github.com/go-vercel/sandbox/internal/test/testkit"
	"github.com/go-vercel/sandbox/otelsandbox"
)

// TestMisuse: invalid arguments give an error of one line.
func TestMisuse(t *testing.T) {
	testkit.Exports{
		Dir:   ".",
		Funcs: map[string]any{"New": otelsandbox.New, "Transport": otelsandbox.Transport},
	}.Misuse(t)
}
