package embedded_test

import (
	"reflect"
	"testing"

	"github.com/go-vercel/sandbox/durable/embedded"
	"github.com/go-vercel/sandbox/internal/test/testkit"
)

// TestMisuse: a mistake in a call is an error in one line.
func TestMisuse(t *testing.T) {
	testkit.Exports{
		Dir:   ".",
		Types: []reflect.Type{reflect.TypeFor[embedded.Server]()},
		Funcs: map[string]any{"TLS": embedded.TLS, "Start": embedded.Start},
	}.Misuse(t)
}
