package sandbox

import (
	"log/slog"
	"os"
	"strings"
	"testing"

	"github.com/go-vercel/sandbox/internal/api"
	"github.com/go-vercel/sandbox/observe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// eventKinds are all kinds of events.
var eventKinds = []observe.Kind{
	observe.Request, observe.Operation, observe.Command, observe.Wait, observe.Repair, observe.Resume, observe.Hook, observe.Stop,
	observe.Upload, observe.Download,
	observe.Tool, observe.Take, observe.Terminal, observe.Visit, observe.Pool,
}

// TestEventLevels: the level of a record says what an operator has to do.
func TestEventLevels(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		event observe.Event
		want  slog.Level
	}{
		{observe.Event{Kind: observe.Operation, Outcome: observe.OK, Attempt: 1}, slog.LevelDebug},
		{observe.Event{Kind: observe.Operation, Outcome: observe.OK, Attempt: 2}, slog.LevelWarn},
		{observe.Event{Kind: observe.Operation, Outcome: "not_found", Attempt: 1}, slog.LevelDebug},
		{observe.Event{Kind: observe.Operation, Outcome: "busy", Attempt: 3}, slog.LevelWarn},
		{observe.Event{Kind: observe.Operation, Outcome: "broken"}, slog.LevelWarn},
		{observe.Event{Kind: observe.Operation, Outcome: "broken", Status: 200}, slog.LevelDebug}, // a stream, which has a record of its own
		{observe.Event{Kind: observe.Operation, Outcome: "unauthorized"}, slog.LevelError},
		{observe.Event{Kind: observe.Operation, Outcome: api.NoCredentials}, slog.LevelError},
		{observe.Event{Kind: observe.Operation, Outcome: observe.Canceled, Attempt: 2}, slog.LevelDebug},
		{observe.Event{Kind: observe.Command, Outcome: observe.Exit, ExitCode: 1}, slog.LevelDebug},
		{observe.Event{Kind: observe.Command, Outcome: observe.Failed}, slog.LevelError},
		{observe.Event{Kind: observe.Repair, Outcome: observe.OK}, slog.LevelWarn},
		{observe.Event{Kind: observe.Repair, Outcome: observe.Failed}, slog.LevelError},
		{observe.Event{Kind: observe.Resume, Outcome: observe.Found}, slog.LevelInfo},
		{observe.Event{Kind: observe.Resume, Outcome: "quota_exceeded"}, slog.LevelError},
		{observe.Event{Kind: observe.Hook, Outcome: observe.Failed}, slog.LevelError},
	} {
		_, level := record(&row.event)
		assert.Equal(t, row.want, level, "%v", row.event)
	}
}

// TestEventsAreDocumented: each kind of event has a record, except requests, which their
// operations cover. docs/observability.md describes both.
func TestEventsAreDocumented(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("docs/observability.md")
	require.NoError(t, err)
	for _, kind := range eventKinds {
		r, recorded := records[kind]
		assert.Equal(t, kind != observe.Request, recorded, kind)
		assert.Contains(t, string(text), "\n| `"+string(kind)+"` |", "the table of events")
		for line := range strings.Lines(string(text)) {
			if recorded && strings.HasPrefix(line, "| `"+string(kind)+"` |") {
				assert.Contains(t, line, "`"+r.message+"`", kind)
				assert.Contains(t, line, "| "+strings.ToLower(r.success.String())+" | "+strings.ToLower(r.failure.String())+" |", kind)
			}
		}
	}
	assert.Len(t, records, len(eventKinds)-1)
}
