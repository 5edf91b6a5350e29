package observe

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/go-vercel/sandbox/internal/redact"
	"github.com/stretchr/testify/assert"
)

type last struct{ e Event }

func (l *last) Begin(context.Context, Event) context.Context { return nil }
func (l *last) End(_ context.Context, e Event)               { l.e = e }

// TestNames: an event that has only a session gets the name of the sandbox.
func TestNames(t *testing.T) {
	t.Parallel()
	var seen last
	s := New(&seen, "api.test", &redact.Known{})
	tell := func(session, sandbox string) string {
		ctx, e := s.Begin(t.Context(), Event{Session: session, Sandbox: sandbox})
		assert.Equal(t, t.Context(), ctx, "nil means the same context")
		s.End(ctx, e)
		return seen.e.Sandbox
	}
	assert.Empty(t, tell("s1", ""))
	s.Owners(func(session string) string { return "of " + session })
	assert.Equal(t, "of s1", tell("s1", ""))
	assert.Equal(t, "box", tell("s1", "box"))
	assert.Empty(t, tell("", ""))
}

// TestNil: a nil Seam reports nothing.
func TestNil(t *testing.T) {
	t.Parallel()
	s := New(nil, "", nil)
	assert.Nil(t, s)
	ctx, e := s.Begin(t.Context(), Event{Kind: Command})
	s.End(ctx, e)
	assert.Equal(t, Event{Kind: Command}, e)
}

// TestRedacted: no secret leaves.
func TestRedacted(t *testing.T) {
	t.Parallel()
	var seen last
	s := New(&seen, "api.test", redact.Knowing("a-secret-token"))
	s.End(t.Context(), Event{Err: errors.New("with a-secret-token"), CauseErr: errors.New("a-secret-token"), RequestID: "a-secret-token\n"})
	assert.NotContains(t, fmt.Sprint(seen.e), "a-secret-token")
	assert.NotContains(t, seen.e.RequestID, "\n")
}
