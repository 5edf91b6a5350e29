package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/cloudwego/eino/components/model"
	"github.com/cloudwego/eino/schema"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/agent"
	"github.com/go-vercel/sandbox/internal/test/scripted"
	"github.com/go-vercel/sandbox/sandboxtest"
)

// call returns a message of a model that calls a tool.
func call(t *testing.T, id, name string, args any) *schema.Message {
	text, err := json.Marshal(args)
	require.NoError(t, err)
	return schema.AssistantMessage("", []schema.ToolCall{{ID: id, Function: schema.FunctionCall{Name: name, Arguments: string(text)}}})
}

// TestScript: the scripted model gets the same results through Eino as without it.
func TestScript(t *testing.T) {
	m, tools := scripted.Start(t)
	last, err := solve(t.Context(), script(func(messages []*schema.Message) *schema.Message {
		seen := ""
		if n := len(messages); n > 2 {
			assert.Equal(t, fmt.Sprint("call-", n-2), messages[n-1].ToolCallID)
			seen = messages[n-1].Content
		}
		next, more := m.Next(seen)
		if !more {
			return schema.AssistantMessage(m.Last(), nil)
		}
		return call(t, fmt.Sprint("call-", len(messages)), next.Tool, next.Args)
	}), tools, "Serve a page.")
	require.NoError(t, err)
	assert.Contains(t, last, "It is served at http")
	assert.Equal(t, scripted.Directly(t), m.Transcript())
}

// listening is a model that records the tools that it gets.
type listening struct {
	script
	tools *[]*schema.ToolInfo
}

func (l listening) WithTools(tools []*schema.ToolInfo) (model.ToolCallingChatModel, error) {
	*l.tools = tools
	return l, nil
}

// TestErrors: the model reads about its mistakes, and the program gets the errors that the
// model can't fix.
func TestErrors(t *testing.T) {
	tools := agent.New(nil, &agent.Options{Limits: agent.Limits{Calls: 1}, Before: func(context.Context, agent.Call) error { return agent.Refuse("ask first") }})
	defer tools.Close()
	var heard []string
	var infos []*schema.ToolInfo
	_, err := solve(t.Context(), listening{func(messages []*schema.Message) *schema.Message {
		assert.Equal(t, tools.Instructions(), messages[0].Content)
		if n := len(messages); n > 2 {
			heard = append(heard, messages[n-1].Content)
		}
		return call(t, "1", "bash", map[string]any{"command": "true"})
	}, &infos}, tools, "Serve a page.")
	require.ErrorIs(t, err, agent.ErrLimit)
	assert.Equal(t, []string{"Refused: ask first"}, heard)
	require.Len(t, infos, len(tools.Tools()))
	for i, want := range tools.Tools() {
		assert.Equal(t, want.Name, infos[i].Name)
		assert.Equal(t, want.Description, infos[i].Desc)
		input, err := infos[i].ToJSONSchema()
		require.NoError(t, err)
		got, err := json.Marshal(input)
		require.NoError(t, err)
		assert.JSONEq(t, string(want.InputSchema), string(got))
	}
}

// TestExample runs the program on the emulator.
func TestExample(t *testing.T) {
	srv := sandboxtest.New(t, nil)
	for _, variable := range srv.Environ() {
		name, value, _ := strings.Cut(variable, "=")
		t.Setenv(name, value)
	}
	require.NoError(t, run(t.Context()))
}
