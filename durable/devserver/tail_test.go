package devserver_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/durable"
	"github.com/go-vercel/sandbox/durable/session"
	"github.com/go-vercel/sandbox/internal/test/testkit"
)

// TestTailOfRunning: a viewer begins with the last lines of a running command, as far as
// the worker has reported it.
func TestTailOfRunning(t *testing.T) {
	store := durable.Dir(t.TempDir())
	l := startLocal(t, session.Policy{}, store, store)
	id, err := l.sessions.Start(t.Context(), nil)
	require.NoError(t, err)
	_, err = l.sessions.Command(t.Context(), id, session.Command{Command: "for ((i = 10000; i < 20000; i++)); do echo $i; done; until [ -e gate ]; do sleep 0.05; done; echo last"})
	require.NoError(t, err)
	const wrote = 60_000
	require.Eventually(t, func() bool {
		at, err := l.sessions.Tail(t.Context(), id, 0)
		return assert.NoError(t, err) && at.Byte == wrote+1
	}, testkit.Patience, 50*time.Millisecond)
	lines, err := l.sessions.Tail(t.Context(), id, 100)
	require.NoError(t, err)
	got := ""
	for e, err := range l.sessions.Events(t.Context(), id, lines) {
		require.NoError(t, err)
		if got += e.Data; len(got) >= 600 {
			break
		}
	}
	assert.Len(t, got, 600)
	assert.True(t, strings.HasPrefix(got, "19900\n"), "%.20q", got)
	sb, err := l.emulator.Client().Get(t.Context(), "durable-"+id, nil)
	require.NoError(t, err)
	require.NoError(t, sb.FS().WriteFile(t.Context(), "gate", nil, 0o600))
	assert.Eventually(t, func() bool {
		at, err := l.sessions.Tail(t.Context(), id, 1)
		return assert.NoError(t, err) && at.Byte == wrote+1 // the cursor is before "last"
	}, testkit.Patience, 50*time.Millisecond)
	require.NoError(t, l.sessions.Destroy(t.Context(), id, nil))
}
