package session

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/durable"
	"github.com/go-vercel/sandbox/durable/durabletest"
)

// failingStore is a store that first fails to store events.
type failingStore struct {
	durable.OutputStore
	away  atomic.Bool
	tried atomic.Int32
}

func (s *failingStore) Create(ctx context.Context, key string) (durable.OutputWriter, error) {
	if strings.Contains(key, "/events/") && s.away.Load() {
		s.tried.Add(1)
		return nil, errors.New("the store is away")
	}
	return s.OutputStore.Create(ctx, key)
}

// TestArchiveUnavailable: while the store fails, a session keeps its history, says why, and
// accepts commands. Later it continues as new.
func TestArchiveUnavailable(t *testing.T) {
	store := &failingStore{OutputStore: durable.Dir(t.TempDir())}
	store.away.Store(true)
	p := newTestSession(t, &durabletest.Options{Output: store})
	for i := range 3 {
		p.send(time.Minute, fmt.Sprint(i), "true")
	}
	p.At(2*time.Minute, func() { p.SetCurrentHistoryLength(100) })
	p.send(3*time.Minute, "rolls", "true")
	p.send(4*time.Minute+30*time.Second, "meanwhile", "echo out")
	p.At(20*time.Minute, func() { store.away.Store(false) })
	p.send(21*time.Minute, "last", "true")
	p.ExecuteWorkflow(Workflow, input{Policy: Policy{HistoryLimit: 50, KeepEvents: 3}})
	_, carried := p.continued()
	assert.Positive(t, carried.State.Base)
	assert.Equal(t, "cmd-5", p.outcomes["meanwhile"])
	var all []Event
	for seq := 0; seq < carried.State.Base; seq = len(all) {
		events, err := archive{store}.get(t.Context(), carried.dir(), (&run{state: carried.State}).page(seq).Stored, seq)
		require.NoError(t, err)
		require.NotEmpty(t, events)
		for _, e := range events {
			all = append(all, e.Event)
		}
	}
	for _, e := range carried.State.Events {
		all = append(all, e.Event)
	}
	assert.Contains(t, story(all), "cmd-5 exited 0")
	i := slices.IndexFunc(all, func(e Event) bool { return e.State == StateBlocked })
	require.Positive(t, i)
	assert.Contains(t, all[i].Error, "the store is away")
	assert.Less(t, int(store.tried.Load()), 60, "the session does not retry all the time")
}

// TestStoredText: a viewer gets the stored text of a command. If the text is missing, the
// event says so; any other error breaks the stream.
func TestStoredText(t *testing.T) {
	a := archive{durable.Dir(t.TempDir())}
	text := textName("echo long")
	require.NoError(t, a.putText(t.Context(), "ses-1", text, "echo long"))
	got, err := a.event(t.Context(), "ses-1", stored{Event: Event{Type: TypeCommandQueued}, Text: text})
	require.NoError(t, err)
	assert.Equal(t, Event{Type: TypeCommandQueued, Command: "echo long"}, got)
	require.NoError(t, a.clear(t.Context(), "ses-1"))
	for _, a := range []archive{a, {}} {
		got, err = a.event(t.Context(), "ses-1", stored{Event: Event{Type: TypeCommandQueued}, Text: text})
		require.NoError(t, err)
		assert.Equal(t, Event{Type: TypeCommandQueued, Truncated: true}, got)
	}
	_, err = a.event(t.Context(), "not:a:key", stored{Text: text})
	require.Error(t, err)
}
