package devserver_test

import (
	"reflect"
	"testing"

	"github.com/go-vercel/sandbox/durable/devserver"
	"github.com/go-vercel/sandbox/internal/test/testkit"
)

// TestMisuse: a mistake in a call returns an error of one line.
func TestMisuse(t *testing.T) {
	testkit.Exports{
		Dir:   ".",
		Types: []reflect.Type{reflect.TypeFor[devserver.Server]()},
		Funcs: map[string]any{"Start": devserver.Start},
	}.Misuse(t)
}
