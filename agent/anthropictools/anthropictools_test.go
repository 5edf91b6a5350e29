package anthropictools_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/agent"
	"github.com/go-vercel/sandbox/agent/anthropictools"
	"github.com/go-vercel/sandbox/internal/test/scripted"
)

// request is the part of the client's request that the scripted model reads.
type request struct {
	System []struct{ Text string }
	Tools  []struct {
		Name        string
		InputSchema struct {
			Type       string
			Properties map[string]any
			Required   []string
		} `json:"input_schema"`
	}
	Messages []struct {
		Role    string
		Content []struct {
			Type      string
			ToolUseID string `json:"tool_use_id"`
			Content   []struct{ Text string }
			IsError   bool `json:"is_error"`
		}
	}
}

// claude serves the Messages API with a scripted model.
func claude(t *testing.T, next func(request) (scripted.Call, string, bool)) *anthropic.Client {
	t.Helper()
	turn := 0
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var req request
		if !assert.NoError(t, json.NewDecoder(r.Body).Decode(&req)) {
			return
		}
		call, last, more := next(req)
		turn++
		message := map[string]any{
			"id": fmt.Sprint("msg_", turn), "type": "message", "role": "assistant", "model": "scripted", "usage": map[string]any{"input_tokens": 1, "output_tokens": 1},
			"stop_reason": "end_turn", "content": []any{map[string]any{"type": "text", "text": last}},
		}
		if more {
			message["stop_reason"] = "tool_use"
			message["content"] = []any{map[string]any{"type": "tool_use", "id": fmt.Sprint("toolu_", turn), "name": call.Tool, "input": call.Args}}
		}
		w.Header().Set("Content-Type", "application/json")
		assert.NoError(t, json.NewEncoder(w).Encode(message))
	}))
	t.Cleanup(srv.Close)
	client := anthropic.NewClient(option.WithBaseURL(srv.URL), option.WithAPIKey("none"), option.WithHTTPClient(srv.Client()))
	return &client
}

var task = anthropic.MessageNewParams{
	Model: "scripted", MaxTokens: 1000, Messages: []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock("Serve a page."))},
}

// TestScript: the scripted model gets the same results through Anthropic's client as without
// it.
func TestScript(t *testing.T) {
	t.Parallel()
	m, tools := scripted.Start(t)
	client := claude(t, func(req request) (scripted.Call, string, bool) {
		seen := ""
		if len(req.Messages) > 1 {
			content := req.Messages[len(req.Messages)-1].Content
			if assert.Len(t, content, 1) && assert.Len(t, content[0].Content, 1) {
				assert.False(t, content[0].IsError)
				assert.Equal(t, fmt.Sprint("toolu_", len(req.Messages)/2), content[0].ToolUseID)
				seen = content[0].Content[0].Text
			}
		}
		call, more := m.Next(seen)
		return call, m.Last(), more
	})
	last, err := anthropictools.Run(t.Context(), client, task, tools)
	require.NoError(t, err)
	assert.Contains(t, last.Content[0].Text, "It is served at http")
	assert.Equal(t, scripted.Directly(t), m.Transcript())
}

// TestErrors: Claude gets failed results, and the program gets the errors that Claude can't
// fix.
func TestErrors(t *testing.T) {
	t.Parallel()
	tools := agent.New(nil, &agent.Options{Limits: agent.Limits{Calls: 1}, Before: func(_ context.Context, call agent.Call) error { return agent.Refuse("ask first") }})
	defer tools.Close()
	var heard []string
	client := claude(t, func(req request) (scripted.Call, string, bool) {
		require.Len(t, req.Tools, len(tools.Tools()))
		assert.Equal(t, "bash", req.Tools[0].Name)
		assert.Equal(t, "object", req.Tools[0].InputSchema.Type)
		assert.Contains(t, req.Tools[0].InputSchema.Properties, "command")
		assert.Equal(t, []string{"command"}, req.Tools[0].InputSchema.Required)
		assert.Equal(t, tools.Instructions(), req.System[0].Text)
		if n := len(req.Messages); n > 1 {
			assert.True(t, req.Messages[n-1].Content[0].IsError)
			heard = append(heard, req.Messages[n-1].Content[0].Content[0].Text)
		}
		return scripted.Call{Tool: "bash", Args: map[string]any{"command": "true"}}, "", true
	})
	message, err := anthropictools.Run(t.Context(), client, task, tools)
	require.ErrorIs(t, err, agent.ErrLimit)
	assert.Equal(t, anthropic.StopReasonToolUse, message.StopReason)
	assert.Equal(t, []string{"Refused: ask first"}, heard)
	assert.Len(t, task.Messages, 1, "the caller's parameters stay as they are")
}
