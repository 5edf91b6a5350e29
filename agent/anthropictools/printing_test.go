package anthropictools_test

import (
	"testing"

	"github.com/go-vercel/sandbox/internal/test/printing"
)

// TestPrinting prints every exported type of the module.
func TestPrinting(t *testing.T) {
	t.Parallel()
	printing.Module{Dir: "."}.Print(t)
}
