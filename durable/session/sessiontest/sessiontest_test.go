package sessiontest_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/durable"
	"github.com/go-vercel/sandbox/durable/session"
	"github.com/go-vercel/sandbox/durable/session/sessiontest"
)

// TestEnv: a program uses a session for a week.
func TestEnv(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	e := sessiontest.New(t, nil)
	ctx := t.Context()
	_, err := e.Client.State(ctx, "week")
	require.ErrorIs(t, err, session.ErrNoSession)
	id, err := e.Client.Start(ctx, &session.StartOptions{ID: "week", Policy: &session.Policy{IdleAfter: time.Hour}})
	require.NoError(t, err)
	_, err = e.Client.Start(ctx, &session.StartOptions{ID: "week"})
	require.NoError(t, err)
	_, err = e.Client.Start(ctx, nil)
	require.ErrorContains(t, err, "one session")
	for i := range 5 {
		e.At(time.Duration(i)*day+time.Minute, func() {
			s, err := e.Client.State(ctx, id)
			assert.NoError(t, err)
			if i > 0 {
				assert.Equal(t, session.StateHibernated, s.State)
			}
			for range 2 { // several calls at the same time
				now := e.Now()
				cmd, err := e.Client.Command(ctx, id, session.Command{Command: "echo more >> f; wc -l < f", Key: now.Format(time.DateOnly)})
				assert.NoError(t, err)
				assert.Equal(t, "cmd-"+string(rune('1'+i)), cmd)
				assert.Equal(t, now, e.Now())
			}
		})
	}
	e.At(5*day, func() {
		long := "# " + strings.Repeat("x", 5000) + "\necho long" // long enough to be stored
		_, err := e.Client.Command(ctx, id, session.Command{Command: long})
		assert.NoError(t, err)
		_, err = e.Client.Command(ctx, id, session.Command{Command: strings.Repeat("x", session.MaxCommand+1)})
		assert.ErrorIs(t, err, sandbox.ErrInvalid)
		assert.ErrorIs(t, e.Client.Interrupt(ctx, id, "cmd-77", sandbox.SIGINT), sandbox.ErrInvalid)
		assert.ErrorIs(t, e.Client.Destroy(ctx, "other", nil), session.ErrNoSession)
	})
	e.At(7*day, func() {
		assert.NoError(t, e.Client.Destroy(ctx, id, &session.DestroyOptions{DeleteSandbox: true}))
	})
	e.At(8*day, func() { t.Error("the session has already ended") })
	count, output := map[string]int{}, map[string]string{}
	for _, event := range e.Run() {
		switch event.Type {
		case session.TypeStatus:
			count[event.State]++
		case session.TypeCommandOutput:
			output[event.ID] += event.Data
		case session.TypeCommandEnd:
			assert.Equal(t, durable.Exited, event.Outcome)
		}
	}
	require.NoError(t, e.GetWorkflowError())
	assert.Equal(t, 6, count[session.StateHibernated])
	assert.Equal(t, "5\n", output["cmd-5"])
	assert.Equal(t, "long\n", output["cmd-6"])
	assert.Greater(t, e.Now().Sub(e.Server.Now()), -time.Minute)
	_, err = e.Client.Command(ctx, id, session.Command{Command: "true"})
	require.ErrorIs(t, err, session.ErrDestroyed)
	s, err := e.Client.State(ctx, id)
	require.NoError(t, err)
	assert.Equal(t, session.StateDestroyed, s.State)
}

// TestEnds: a call that waits while the session ends gets an answer. A session can end by
// itself.
func TestEnds(t *testing.T) {
	t.Parallel()
	e := sessiontest.New(t, &sessiontest.Options{Session: session.Options{Policy: session.Policy{MaxAge: time.Hour}}})
	id, err := e.Client.Start(t.Context(), nil)
	require.NoError(t, err)
	e.At(time.Minute, func() {
		for _, err := range e.Client.Events(t.Context(), id, session.Cursor{}) {
			assert.ErrorContains(t, err, "once Run has returned")
		}
		assert.NoError(t, e.Client.Destroy(t.Context(), id, nil))
		_, err := e.Client.Command(t.Context(), id, session.Command{Command: "true"})
		assert.ErrorIs(t, err, session.ErrDestroyed)
	})
	events := e.Run()
	assert.Equal(t, session.StateDestroyed, events[len(events)-1].Status)
}
