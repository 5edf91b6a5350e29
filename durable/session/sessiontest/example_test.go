package sessiontest_test

import (
	"context"
	"testing"
	"time"

	"github.com/go-vercel/sandbox/durable/session"
	"github.com/go-vercel/sandbox/durable/session/sessiontest"
)

// backup is the tested program.
func backup(ctx context.Context, sessions *session.Client, id string) error {
	_, err := sessions.Command(ctx, id, session.Command{Command: "tar cf backup.tar notes", Key: "backup"})
	return err
}

// Test two days of a session in a second.
func Example() {
	var t *testing.T // of a Test function

	ctx := t.Context()
	e := sessiontest.New(t, nil)
	id, err := e.Client.Start(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	e.At(time.Minute, func() {
		_, _ = e.Client.Command(ctx, id, session.Command{Command: "echo milk > notes"})
	})
	e.At(24*time.Hour, func() {
		if err := backup(ctx, e.Client, id); err != nil {
			t.Error(err)
		}
	})
	e.At(48*time.Hour, func() { _ = e.Client.Destroy(ctx, id, nil) })
	for _, event := range e.Run() {
		if event.Type == session.TypeCommandEnd && *event.ExitCode != 0 {
			t.Errorf("%s: exit code %d", event.ID, *event.ExitCode)
		}
	}
}
