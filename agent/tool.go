package agent

import (
	"context"
	"encoding/json"
	"reflect"
)

// Tool describes a tool to a model.
type Tool struct {
	Name, Description string
	// InputSchema is the JSON Schema of the arguments, an object.
	InputSchema json.RawMessage
	// ReadOnly reports whether the tool changes nothing, and Destructive whether
	// it may change or remove what exists.
	ReadOnly, Destructive bool
}

// tool is a tool with its implementation.
type tool struct {
	Tool
	input        reflect.Type
	run          func(ctx context.Context, c *call) (Result, error)
	findsSandbox bool // it finds its sandbox itself, or needs none
	quick        bool // Limits.Timeout also limits the tool
}

// newTool returns a tool that calls a function. The function's last parameter is a struct with
// the arguments of the tool.
func newTool[In any](name, description string, run func(context.Context, *call, *In) (Result, error)) *tool {
	in := reflect.TypeFor[In]()
	return &tool{
		Tool: Tool{Name: name, Description: description, InputSchema: schema(in)}, input: in,
		run: func(ctx context.Context, c *call) (Result, error) { return run(ctx, c, c.input.(*In)) },
	}
}

func (t *tool) asReadOnly() *tool { t.ReadOnly = true; return t }

func (t *tool) asDestructive() *tool { t.Destructive = true; return t }

func (t *tool) asFindingSandbox() *tool { t.findsSandbox = true; return t }

func (t *tool) asQuick() *tool { t.quick = true; return t }
