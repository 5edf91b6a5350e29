package durable_test

import (
	"reflect"
	"testing"

	"github.com/go-vercel/sandbox/durable"
	"github.com/go-vercel/sandbox/internal/test/testkit"
)

// TestMisuse: a mistake in a call is an error of one line, not a panic.
func TestMisuse(t *testing.T) {
	testkit.Exports{
		Dir: ".",
		Types: []reflect.Type{
			reflect.TypeFor[durable.Git](), reflect.TypeFor[durable.Result](), reflect.TypeFor[durable.Sandbox](), reflect.TypeFor[durable.Worker](),
		},
		Funcs: map[string]any{
			"DefaultName": durable.DefaultName, "Message": durable.Message, "ReadOutput": durable.ReadOutput, "SweepWorkflow": durable.SweepWorkflow,
			"Written": durable.Written, "Dir": durable.Dir, "Open": durable.Open,
		},
		Except: map[string]string{
			"nil Sandbox.Follow": "a Future needs the context", "zero Sandbox.Follow": "a Future needs the context",
			"nil Worker.Register": "as a nil worker.Worker, to register with", "zero Worker.Register": "as a nil worker.Worker, to register with",
		},
	}.Misuse(t)
}
