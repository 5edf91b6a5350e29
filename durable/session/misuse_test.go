package session_test

import (
	"reflect"
	"testing"

	"github.com/go-vercel/sandbox/durable/session"
	"github.com/go-vercel/sandbox/internal/test/testkit"
)

// TestMisuse: a mistake in a call is an error of one line, not a panic.
func TestMisuse(t *testing.T) {
	testkit.Exports{
		Dir: ".",
		Types: []reflect.Type{
			reflect.TypeFor[session.Client](), reflect.TypeFor[session.Command](), reflect.TypeFor[session.Conversations](), reflect.TypeFor[session.Cursor](),
			reflect.TypeFor[session.Event](), reflect.TypeFor[session.Millis](),
		},
		Funcs: map[string]any{
			"Register": session.Register, "RegisterOnly": session.RegisterOnly, "Token": session.Token,
			"Workflow": session.Workflow, "New": session.New, "ParseCursor": session.ParseCursor,
		},
		Except: map[string]string{"function Register": "as a nil worker.Worker, to register with", "function Workflow": "it is called by workers"},
	}.Misuse(t)
}
