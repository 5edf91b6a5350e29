package devserver_test

import (
	"reflect"
	"testing"

	"github.com/go-vercel/sandbox/durable/devserver"
	"github.com/go-vercel/sandbox/internal/test/printing"
)

// TestPrinting prints every exported type of the module.
func TestPrinting(t *testing.T) {
	t.Parallel()
	printing.Module{Dir: ".", Roots: []reflect.Type{reflect.TypeFor[devserver.Server]()}}.Print(t)
}
