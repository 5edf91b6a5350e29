package adktools_test

import (
	"context"
	"iter"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/genai"

	adk "google.golang.org/adk/v2/agent"
	"google.golang.org/adk/v2/agent/llmagent"
	"google.golang.org/adk/v2/model"
	"google.golang.org/adk/v2/runner"
	"google.golang.org/adk/v2/tool"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/agent"
	"github.com/go-vercel/sandbox/agent/adktools"
	"github.com/go-vercel/sandbox/internal/test/scripted"
	"github.com/go-vercel/sandbox/sandboxtest"
)

// gemini is a scripted model: the function returns its next call or its last text. seen is the
// response to the previous call, or nil.
type gemini func(req *model.LLMRequest, seen map[string]any) (call scripted.Call, last string, more bool)

func (gemini) Name() string { return "scripted" }

func (g gemini) GenerateContent(_ context.Context, req *model.LLMRequest, _ bool) iter.Seq2[*model.LLMResponse, error] {
	return func(yield func(*model.LLMResponse, error) bool) {
		var seen map[string]any
		for _, part := range req.Contents[len(req.Contents)-1].Parts {
			if part.FunctionResponse != nil {
				seen = part.FunctionResponse.Response
			}
		}
		call, last, more := g(req, seen)
		part := genai.NewPartFromText(last)
		if more {
			part = genai.NewPartFromFunctionCall(call.Tool, call.Args)
		}
		yield(&model.LLMResponse{Content: genai.NewContentFromParts([]*genai.Part{part}, genai.RoleModel)}, nil)
	}
}

// run lets an agent answer in a session and returns its last text.
func run(t *testing.T, g gemini, tools *adktools.Toolset, user, session string) (last string) {
	t.Helper()
	a, err := llmagent.New(llmagent.Config{Name: "tester", Model: g, Toolsets: []tool.Toolset{tools}})
	require.NoError(t, err)
	r, err := runner.NewInMemory("test", a)
	require.NoError(t, err)
	for event, err := range r.Run(t.Context(), user, session, genai.NewContentFromText("Serve a page.", genai.RoleUser), adk.RunConfig{}) {
		require.NoError(t, err)
		if event.Content == nil {
			continue
		}
		for _, part := range event.Content.Parts {
			if part.Text != "" {
				last = part.Text
			}
		}
	}
	return last
}

// TestScript: the scripted model gets the same results through ADK as without it.
func TestScript(t *testing.T) {
	t.Parallel()
	m, tools := scripted.Start(t)
	last := run(t, func(_ *model.LLMRequest, seen map[string]any) (scripted.Call, string, bool) {
		assert.NotContains(t, seen, "error")
		text, _ := seen["result"].(string)
		call, more := m.Next(text)
		return call, m.Last(), more
	}, adktools.New(tools), "user", "session")
	assert.Contains(t, last, "It is served at http")
	assert.Equal(t, scripted.Directly(t), m.Transcript())
}

// TestSessions: each session of an agent has its own sandbox, and errors reach the model as
// texts.
func TestSessions(t *testing.T) {
	t.Parallel()
	srv := sandboxtest.New(t, nil)
	pool := agent.NewConversations(srv.Client(), &agent.ConversationsOptions{Create: func(string) *sandbox.CreateOptions { return &sandbox.CreateOptions{Timeout: time.Hour} }})
	defer func() { assert.NoError(t, pool.Close(context.WithoutCancel(t.Context()))) }()
	var reported []error
	tools := adktools.ForSessions(pool, &agent.Options{Limits: agent.Limits{Calls: 1}, OnError: func(_ agent.Call, err error) { reported = append(reported, err) }})
	defer tools.Close()
	var seenErrors []any
	once := func(req *model.LLMRequest, seen map[string]any) (scripted.Call, string, bool) {
		require.NotEmpty(t, req.Config.Tools)
		first := req.Config.Tools[0].FunctionDeclarations[0]
		assert.Equal(t, "bash", first.Name)
		assert.Contains(t, first.ParametersJsonSchema, "properties")
		if seen["error"] != nil {
			seenErrors = append(seenErrors, seen["error"])
			return scripted.Call{}, "stopped", false
		}
		return scripted.Call{Tool: "bash", Args: map[string]any{"command": "true"}}, "", true
	}
	for _, user := range []string{"one", "two"} { // their sessions have the same ID
		assert.Equal(t, "stopped", run(t, once, tools, user, "1"))
		_, err := srv.Client().Get(t.Context(), pool.Name(adktools.Conversation("test", user, "1")), nil)
		require.NoError(t, err)
	}
	const text = "The budget for these tools is used up. Finish with what you have, and say so."
	assert.Equal(t, []any{text, text}, seenErrors)
	require.Len(t, reported, 2)
	assert.ErrorIs(t, reported[1], agent.ErrLimit)
}
