package adktools_test

import (
	"reflect"
	"testing"

	"github.com/go-vercel/sandbox/agent/adktools"
	"github.com/go-vercel/sandbox/internal/test/testkit"
)

// TestMisuse: a mistake in a call is an error in one line.
func TestMisuse(t *testing.T) {
	testkit.Exports{
		Dir:   ".",
		Types: []reflect.Type{reflect.TypeFor[adktools.Toolset]()},
		Funcs: map[string]any{"Conversation": adktools.Conversation, "ForSessions": adktools.ForSessions, "New": adktools.New},
	}.Misuse(t)
}
