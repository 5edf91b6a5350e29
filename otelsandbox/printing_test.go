package otelsandbox_test

import (
	"reflect"
	"testing"

	"github.com/go-vercel/sandbox/internal/test/printing"
	"github.com/go-vercel/sandbox/otelsandbox"
)

// TestPrinting prints every exported type of the module.
func TestPrinting(t *testing.T) {
	t.Parallel()
	printing.Module{Dir: ".", Roots: []reflect.Type{reflect.TypeFor[otelsandbox.Options]()}}.Print(t)
}
