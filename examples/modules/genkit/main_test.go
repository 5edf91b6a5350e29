package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/firebase/genkit/go/ai"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/agent"
	"github.com/go-vercel/sandbox/internal/test/scripted"
	"github.com/go-vercel/sandbox/sandboxtest"
)

// model returns a scripted model. next returns its next call or its answer. seen is the
// result of the previous call, or empty.
func model(t *testing.T, next func(req *ai.ModelRequest, seen string) *ai.Part) ai.ModelFunc {
	return func(_ context.Context, req *ai.ModelRequest, _ ai.ModelStreamCallback) (*ai.ModelResponse, error) {
		seen := ""
		if last := req.Messages[len(req.Messages)-1]; last.Role == ai.RoleTool {
			response := last.Content[0].ToolResponse
			assert.Equal(t, fmt.Sprint("call-", len(req.Messages)-2), response.Ref)
			seen, _ = response.Output.(string)
		}
		return &ai.ModelResponse{Request: req, Message: ai.NewModelMessage(next(req, seen)), FinishReason: ai.FinishReasonStop}, nil
	}
}

// call is the part of a message that calls a tool.
func call(req *ai.ModelRequest, name string, args map[string]any) *ai.Part {
	return ai.NewToolRequestPart(&ai.ToolRequest{Ref: fmt.Sprint("call-", len(req.Messages)), Name: name, Input: args})
}

// TestScript: the scripted model gets the same results through Genkit as without it.
func TestScript(t *testing.T) {
	m, tools := scripted.Start(t)
	last, err := solve(t.Context(), model(t, func(req *ai.ModelRequest, seen string) *ai.Part {
		next, more := m.Next(seen)
		if !more {
			return ai.NewTextPart(m.Last())
		}
		return call(req, next.Tool, next.Args)
	}), tools, "Serve a page.")
	require.NoError(t, err)
	assert.Contains(t, last, "It is served at http")
	assert.Equal(t, scripted.Directly(t), m.Transcript())
}

// TestErrors: the model reads about its mistakes, and the program gets the errors that the
// model can't fix.
func TestErrors(t *testing.T) {
	tools := agent.New(nil, &agent.Options{Limits: agent.Limits{Calls: 1}, Before: func(context.Context, agent.Call) error { return agent.Refuse("ask first") }})
	defer tools.Close()
	var heard []string
	_, err := solve(t.Context(), model(t, func(req *ai.ModelRequest, seen string) *ai.Part {
		assert.Equal(t, tools.Instructions(), req.Messages[0].Text())
		if seen != "" {
			heard = append(heard, seen)
		}
		described := map[string]*ai.ToolDefinition{}
		for _, tool := range req.Tools {
			described[tool.Name] = tool
		}
		assert.Len(t, described, len(tools.Tools()))
		for _, want := range tools.Tools() {
			if got := described[want.Name]; assert.NotNil(t, got, want.Name) {
				assert.Equal(t, want.Description, got.Description)
				input, err := json.Marshal(got.InputSchema)
				assert.NoError(t, err)
				assert.JSONEq(t, string(want.InputSchema), string(input))
			}
		}
		return call(req, "bash", map[string]any{"command": "true"})
	}), tools, "Serve a page.")
	require.ErrorIs(t, err, agent.ErrLimit)
	assert.Equal(t, []string{"Refused: ask first"}, heard)
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
