package devserver_test

import (
	"iter"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/durable"
	"github.com/go-vercel/sandbox/durable/session"
	"github.com/go-vercel/sandbox/sandboxtest"
)

// TestRequestsOfAViewedCommand: a command with a viewer costs four requests: its start, the
// viewer's log, and two to make sure that the log has ended. Renewing the lease costs one
// more, at most once a minute.
func TestRequestsOfAViewedCommand(t *testing.T) {
	store := durable.Dir(t.TempDir())
	l := startLocal(t, session.Policy{}, store, store)
	id, err := l.sessions.Start(t.Context(), nil)
	require.NoError(t, err)
	next, stop := iter.Pull2(l.sessions.Events(t.Context(), id, session.Cursor{}))
	defer stop()
	s := &recording{t, l.emulator, l.temporal, l.sessions, id, next}
	s.until(session.StateActive)
	sb, err := l.emulator.Client().Get(t.Context(), "durable-"+id, nil)
	require.NoError(t, err)
	begin := len(l.emulator.Requests())
	const commands = 3
	for range commands {
		s.send("echo begun; until rm gate 2>/dev/null; do sleep 0.05; done")
		s.until("begun")
		require.NoError(t, sb.FS().WriteFile(t.Context(), "gate", nil, 0o600))
		s.until(session.TypeCommandEnd)
		s.until(session.TypeActivity)
	}
	counts, all := map[sandboxtest.Operation]int{}, -commands // do not count the commands that open the gate
	for _, r := range l.emulator.Requests()[begin:] {
		if r.Operation != sandboxtest.ExtendTimeout {
			counts[r.Operation]++
			all++
		}
	}
	assert.LessOrEqual(t, all, 4*commands, "%v", counts)
	s.end(nil)
}
