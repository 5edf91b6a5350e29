package agent

import (
	"context"
	"encoding/json"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox"
)

// spellings are calls of tools in all names that they and their arguments have.
func spellings() (list [][2]string) {
	names := slices.Sorted(maps.Keys(toolNames))
	for _, tool := range names {
		names = append(names, toolNames[tool])
	}
	names = append(names, "str_replace_based_edit_tool", "str_replace_editor", "save_artifact", "load_artifact", "write_input")
	arguments := slices.Collect(maps.Keys(argumentNames))
	arguments = append(arguments, slices.Collect(maps.Values(argumentNames))...)
	slices.Sort(arguments)
	for _, tool := range names {
		for _, argument := range slices.Compact(arguments) {
			list = append(list, [2]string{tool, `{"` + argument + `": "../pr\u006fduction//x", "content": "c", "pattern": "p"}`})
		}
		for _, command := range []string{`["cat", "a b", "it's", "", "$(x)"]`, `"\u0063at ../x"`, `[]`} {
			list = append(list, [2]string{tool, `{"cmd": ` + command + `, "workdir": "./a/..", "timeout": 5e3, "run_in_background": true}`})
		}
	}
	return append(list,
		[2]string{"python", `{"code": "\u0070ass"}`}, [2]string{"bash", `{"restart": true}`}, [2]string{"LS", `{}`}, [2]string{"Grep", `{"pattern": "x", "path": null}`},
		[2]string{"str_replace_editor", `{"command": "view", "path": "x", "view_range": [2, 1]}`}, [2]string{"bash", `{"command": "a", "command": "b", "env": {"A": "<&>"}}`},
		[2]string{"str_replace_editor", `{"command": "insert", "path": "/x/../y", "insert_line": 3, "insert_text": "z"}`}, [2]string{"Write", `{"file_path": "a", "filePath": "b", "content": ""}`},
	)
}

// FuzzBefore wants the policy to see what runs: the arguments that the tool gets,
// in the one spelling of its schema.
func FuzzBefore(f *testing.F) {
	for _, s := range spellings() {
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
	tools.boxOf("").cwd = cwd
	tools.tools = slices.Concat(commandTools(), fileTools(), machineTools())
	for _, tool := range tools.tools {
		tool.alone = true
		tool.run = func(_ context.Context, c *call) (Result, error) {
			ran = c.in
			return Result{}, nil
		}
	}
	f.Fuzz(func(t *testing.T, name, args string) {
		seen, ran = nil, nil
		_, err := tools.Call(t.Context(), name, json.RawMessage(args))
		if ran == nil { // a mistake of the model's
			assert.NoError(t, err)
			return
		}
		require.Len(t, seen, 1, "each call is judged")
		call := seen[0]
		runs, err := encode(ran, "")
		require.NoError(t, err)
		assert.Equal(t, string(runs), string(call.Arguments), "other arguments are judged than run")

		var paths []string
		for _, l := range locations(ran) {
			assert.True(t, path.IsAbs(l.at) && path.Clean(l.at) == l.at, "%q", l.at)
			paths = append(paths, l.at)
		}
		assert.ElementsMatch(t, paths, call.Paths())
		switch in := ran.(type) {
		case *runInput:
			assert.Equal(t, string(in.Command), call.Command())
		case *startInput:
			assert.Equal(t, string(in.Command), call.Command())
		case *pythonInput:
			assert.Equal(t, in.Code, call.Command())
		default:
			assert.Empty(t, call.Command())
		}

		var given map[string]any
		require.NoError(t, json.Unmarshal(call.Arguments, &given))
		at := slices.IndexFunc(tools.tools, func(tool *tool) bool { return tool.Name == call.Tool })
		var offered struct{ Properties map[string]any }
		require.NoError(t, json.Unmarshal(tools.tools[at].InputSchema, &offered))
		for argument := range given {
			if argument != "restart" && argument != "insert_line" { // of other makers' tools
				assert.Contains(t, offered.Properties, argument)
			}
		}

		// What is judged is one spelling: it is judged and runs alike as a call.
		again, ranFirst := call.Arguments, ran
		seen, ran = nil, nil
		_, err = tools.Call(t.Context(), call.Tool, again)
		require.NoError(t, err)
		require.Len(t, seen, 1, "%s %s", call.Tool, again)
		assert.Equal(t, string(again), string(seen[0].Arguments))
		assert.IsType(t, ranFirst, ran)
	})
}

// TestEverySpelling wants the table of spellings to have calls of each tool with
// a path or a command, so that the fuzz test begins with what there is.
func TestEverySpelling(t *testing.T) {
	t.Parallel()
	left := map[string]bool{}
	for _, tool := range slices.Concat(commandTools(), fileTools()) {
		if s := string(tool.InputSchema); strings.Contains(s, `"path"`) || strings.Contains(s, `"cwd"`) || strings.Contains(s, `"code"`) {
			left[tool.Name] = true
		}
	}
	for _, s := range spellings() {
		name, _ := ownName(s[0], json.RawMessage(s[1]))
		delete(left, name)
	}
	assert.Empty(t, left)
}
