// Package adktools gives the tools of package agent to agents of Google's Agent
// Development Kit.
package adktools

import (
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"google.golang.org/genai"

	adk "google.golang.org/adk/v2/agent"
	"google.golang.org/adk/v2/model"
	"google.golang.org/adk/v2/tool"
	"google.golang.org/adk/v2/tool/toolutils"

	"github.com/go-vercel/sandbox/agent"
	"github.com/go-vercel/sandbox/internal/entry"
)

// Toolset is a toolset of ADK. It is safe for concurrent use.
type Toolset struct {
	toolsetFor func(ctx adk.ReadonlyContext) *agent.Toolset

	mu       sync.Mutex
	toolsets map[string]*agent.Toolset // by conversation; Close closes them
}

// New returns a toolset for the Toolsets of an llmagent.Config. All sessions of the agent
// share it. Use [ForSessions] if each session needs its own sandbox. Add the Instructions of
// tools to those of the agent.
//
// The model reads errors in the field "error" of the response. ADK itself sees no errors and
// does not call its error callbacks, whose results it would send to the model unchanged.
// [agent.Options].OnError gets the errors for the program.
func New(tools *agent.Toolset) *Toolset {
	return &Toolset{toolsetFor: func(adk.ReadonlyContext) *agent.Toolset { return tools }}
}

// ForSessions returns a toolset whose tools work on the sandbox of the ADK session that calls
// them. [Conversation] returns the ID of the session's conversation. The caller closes the
// toolset.
func ForSessions(sessions agent.Sessions, opts *agent.Options) *Toolset {
	t := &Toolset{toolsets: map[string]*agent.Toolset{}}
	t.toolsetFor = func(ctx adk.ReadonlyContext) *agent.Toolset {
		conversation := Conversation(ctx.AppName(), ctx.UserID(), ctx.SessionID())
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.toolsets[conversation] == nil {
			t.toolsets[conversation] = agent.ForConversation(sessions, conversation, opts)
		}
		return t.toolsets[conversation]
	}
	return t
}

// Conversation returns the ID of a session's conversation. It contains the app and the user,
// because ADK allows two users to have sessions with the same ID.
func Conversation(app, user, session string) string {
	return fmt.Sprintf("%q %q %q", app, user, session)
}

// Close closes the tools of all sessions, but not the tools given to [New].
func (t *Toolset) Close() error {
	if err := entry.Made(t != nil && t.toolsetFor != nil, "adktools", "the Toolset"); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	var errs []error
	for _, tools := range t.toolsets {
		errs = append(errs, tools.Close())
	}
	return errors.Join(errs...)
}

// Name implements [tool.Toolset].
func (t *Toolset) Name() string { return "sandbox" }

// Tools implements [tool.Toolset].
func (t *Toolset) Tools(ctx adk.ReadonlyContext) ([]tool.Tool, error) {
	if err := entry.Check(ctx, t != nil && t.toolsetFor != nil, "adktools", "the Toolset"); err != nil {
		return nil, err
	}
	tools := t.toolsetFor(ctx)
	var list []tool.Tool
	for _, described := range tools.Tools() {
		var schema map[string]any
		if err := json.Unmarshal(described.InputSchema, &schema); err != nil {
			return nil, err
		}
		list = append(list, &function{described, schema, tools})
	}
	return list, nil
}

// function is a tool in the form that ADK expects.
type function struct {
	agent.Tool
	schema map[string]any
	tools  *agent.Toolset
}

func (f *function) Name() string        { return f.Tool.Name }
func (f *function) Description() string { return f.Tool.Description }
func (f *function) IsLongRunning() bool { return false }

// Declaration describes the tool to the model.
func (f *function) Declaration() *genai.FunctionDeclaration {
	return &genai.FunctionDeclaration{Name: f.Name(), Description: f.Description(), ParametersJsonSchema: f.schema}
}

// ProcessRequest adds the tool to a request to the model.
func (f *function) ProcessRequest(_ adk.Context, req *model.LLMRequest) error {
	return toolutils.PackTool(req, f)
}

// Run calls the tool.
func (f *function) Run(ctx adk.Context, args any) (map[string]any, error) {
	text, err := json.Marshal(args)
	if err != nil {
		return nil, err
	}
	result, _ := f.tools.Call(ctx, f.Name(), text) // OnError gets the error
	if result.Failed {
		return map[string]any{"error": result.Text}, nil
	}
	return map[string]any{"result": result.Text}, nil
}
