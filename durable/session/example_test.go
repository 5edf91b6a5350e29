package session_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/durable"
	"github.com/go-vercel/sandbox/durable/session"
	"github.com/go-vercel/sandbox/durable/session/sessiontest"
)

// startWorker runs sessions. Start one in as many processes as you like.
func startWorker(c client.Client, sandboxes *sandbox.Client, output durable.OutputStore) (worker.Worker, error) {
	w := worker.New(c, "sandbox", worker.Options{})
	session.Register(w, &durable.Worker{Client: sandboxes, Output: output})
	return w, w.Start()
}

// send gives a session a command. Repeated with the same key, it does nothing more.
func send(ctx context.Context, sessions *session.Client, id string) error {
	_, err := sessions.Command(ctx, id, session.Command{Command: "echo Hello", Key: "hello"})
	return err
}

// show writes what a session's commands print, from the start, until the first has ended.
func show(ctx context.Context, sessions *session.Client, id string, to io.Writer) error {
	for event, err := range sessions.Events(ctx, id, session.Cursor{}) {
		if err != nil {
			return err
		}
		switch event.Type {
		case session.TypeCommandOutput:
			fmt.Fprint(to, event.Data)
		case session.TypeCommandEnd:
			return nil
		}
	}
	return nil
}

// TestFirstProgram: the functions that docs/durable.md begins with.
func TestFirstProgram(t *testing.T) {
	t.Parallel()
	_ = startWorker // needs a server
	e := sessiontest.New(t, nil)
	id, err := e.Client.Start(t.Context(), &session.StartOptions{Title: "hello"})
	require.NoError(t, err)
	e.At(time.Minute, func() {
		assert.NoError(t, send(t.Context(), e.Client, id))
		assert.NoError(t, send(t.Context(), e.Client, id))
	})
	e.At(time.Hour, func() { assert.NoError(t, e.Client.Destroy(t.Context(), id, nil)) })
	ends := 0
	for _, event := range e.Run() {
		if event.Type == session.TypeCommandEnd {
			ends++
		}
	}
	assert.Equal(t, 1, ends)
	var out bytes.Buffer
	require.NoError(t, show(t.Context(), e.Client, id, &out))
	assert.Equal(t, "Hello\n", out.String())
}
