package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"testing"

	"github.com/go-vercel/sandbox/internal/redact"
	"github.com/go-vercel/sandbox/observe"
	"github.com/stretchr/testify/assert"
)

type last struct{ e observe.Event }

func (l *last) Begin(context.Context, observe.Event) context.Context { return nil }
func (l *last) End(_ context.Context, e observe.Event)               { l.e = e }

func observedClient(o observe.Observer, secrets *redact.Known) *Client {
	return New(Config{BaseURL: &url.URL{Host: "api.test"}, HTTPClient: http.DefaultClient, Observer: o, Secrets: secrets})
}

// TestSpanNames: an event that has only a session gets the name of the sandbox.
func TestSpanNames(t *testing.T) {
	t.Parallel()
	var seen last
	s := observedClient(&seen, nil)
	tell := func(session, sandbox string) string {
		ctx, e := s.Begin(t.Context(), observe.Event{Session: session, Sandbox: sandbox})
		assert.Equal(t, t.Context(), ctx, "nil means the same context")
		e.End(nil)
		return seen.e.Sandbox
	}
	assert.Empty(t, tell("s1", ""))
	s.owners.learn("s1", "of s1")
	assert.Equal(t, "of s1", tell("s1", ""))
	assert.Equal(t, "box", tell("s1", "box"))
	assert.Empty(t, tell("", ""))
}

// TestSpanNil: without an observer nothing is reported.
func TestSpanNil(t *testing.T) {
	t.Parallel()
	s := observedClient(nil, nil)
	assert.False(t, s.Observed())
	ctx, e := s.Begin(t.Context(), observe.Event{Kind: observe.Command})
	e.End(nil)
	assert.Equal(t, t.Context(), ctx)
	assert.Equal(t, observe.Event{Kind: observe.Command}, e.Event)
}

// TestSpanRedacted: events contain no secrets.
func TestSpanRedacted(t *testing.T) {
	t.Parallel()
	var seen last
	s := observedClient(&seen, redact.Knowing("a-secret-token"))
	_, e := s.Begin(t.Context(), observe.Event{CauseErr: errors.New("a-secret-token"), RequestID: "a-secret-token\n"})
	e.End(errors.New("with a-secret-token"))
	assert.NotContains(t, fmt.Sprint(seen.e), "a-secret-token")
	assert.NotContains(t, seen.e.RequestID, "\n")
}
