package agent

import (
	"context"
	"encoding/json"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox"
)

// callSpellings returns calls of all tools, with values that have several spellings.
func callSpellings() (list [][2]string) {
	for _, tool := range slices.Concat(commandTools(), fileTools(), machineTools()) {
		var schema struct {
			Properties map[string]any `json:"properties"`
		}
		if err := json.Unmarshal(tool.InputSchema, &schema); err != nil {
			panic(err)
		}
		given := map[string]string{
			"path": `"../pr\u006fduction//x"`, "cwd": `"./a/.."`, "command": `"\u0063at ../x"`, "code": `"\u0070ass"`,
			"env": `{"A": "<&>"}`, "timeout_seconds": "5e3", "offset": "null", "port": "3000",
		}
		var all []string
		for name := range schema.Properties {
			value := given[name]
			if value == "" && (name == "input" || name == "close" || name == "executable" || name == "replace_all" || name == "ignore_case") {
				value = "true"
			} else if value == "" && (name == "limit" || name == "wait_seconds") {
				value = "1"
			} else if value == "" {
				value = `"x"`
			}
			all = append(all, `"`+name+`": `+value)
		}
		list = append(list, [2]string{tool.Name, "{" + strings.Join(all, ", ") + "}"}, [2]string{tool.Name, "{}"})
	}
	return append(list, [2]string{"bash", `{"command": "a", "command": "b"}`}, [2]string{"bash", `{"command": ["a"]}`}, [2]string{"read_file", `{"Path": "x"}`})
}

// FuzzBefore: Before sees exactly the arguments that the tool gets, in canonical form.
func FuzzBefore(f *testing.F) {
	for _, s := range callSpellings() {
		f.Add(s[0], s[1])
	}
	const cwd = "/vercel/sandbox"
	var seen []Call
	var ran any
	tools := ForConversation(SessionsFunc(func(context.Context, string) (*sandbox.Sandbox, error) {
		panic("the working directory is known")
	}), "", &Options{Limits: Limits{CallsPerMinute: -1}, Before: func(_ context.Context, call Call) error {
		seen = append(seen, call)
		return nil
	}})
	f.Cleanup(func() { assert.NoError(f, tools.Close()) })
	tools.stateFor("").cwd = cwd
	tools.tools = slices.Concat(commandTools(), fileTools(), machineTools())
	for _, tool := range tools.tools {
		tool.findsSandbox = true
		tool.run = func(_ context.Context, c *call) (Result, error) {
			ran = c.input
			return Result{}, nil
		}
	}
	f.Fuzz(func(t *testing.T, name, args string) {
		seen, ran = nil, nil
		_, err := tools.Call(t.Context(), name, json.RawMessage(args))
		if ran == nil { // the arguments are invalid
			assert.NoError(t, err)
			return
		}
		require.Len(t, seen, 1, "each call is judged")
		call := seen[0]
		runs, err := encode(ran, "")
		require.NoError(t, err)
		assert.Equal(t, string(runs), string(call.Arguments), "Before sees arguments that the tool does not get")

		var paths []string
		for _, l := range locations(ran) {
			assert.True(t, path.IsAbs(l.abs) && path.Clean(l.abs) == l.abs, "%q", l.abs)
			paths = append(paths, l.abs)
		}
		assert.ElementsMatch(t, paths, call.Paths())
		var program *Program
		switch in := ran.(type) {
		case *runInput:
			program = &Program{Name: "bash", Args: []string{"-c", in.Command}, Dir: in.Cwd.abs, Env: in.Env}
		case *startInput:
			program = &Program{Name: "bash", Args: []string{"-c", in.Command}, Dir: in.Cwd.abs, Env: in.Env, StdinOpen: in.Input}
		case *pythonInput:
			program = &Program{Name: "python3", Stdin: in.Code}
		case *writeInputInput:
			program = &Program{CommandID: in.ID, Stdin: in.Text, StdinOpen: !in.Close}
		}
		if program != nil && len(program.Env) == 0 {
			program.Env = nil
		}
		assert.Equal(t, program, call.Program)

		var given map[string]any
		require.NoError(t, json.Unmarshal(call.Arguments, &given))
		at := slices.IndexFunc(tools.tools, func(tool *tool) bool { return tool.Name == call.Tool })
		var offered struct{ Properties map[string]any }
		require.NoError(t, json.Unmarshal(tools.tools[at].InputSchema, &offered))
		for argument := range given {
			assert.Contains(t, offered.Properties, argument)
		}

		// A call with the canonical form reaches Before unchanged.
		again, ranFirst := call.Arguments, ran
		seen, ran = nil, nil
		_, err = tools.Call(t.Context(), call.Tool, again)
		require.NoError(t, err)
		require.Len(t, seen, 1, "%s %s", call.Tool, again)
		assert.Equal(t, string(again), string(seen[0].Arguments))
		assert.IsType(t, ranFirst, ran)
	})
}
