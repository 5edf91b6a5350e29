package devserver_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/history/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"

	"github.com/go-vercel/sandbox/durable"
	"github.com/go-vercel/sandbox/durable/session"
	"github.com/go-vercel/sandbox/sandboxtest"
)

// pageStore calls page before it stores a page of events.
type pageStore struct {
	durable.OutputStore
	page func()
}

func (s pageStore) Create(ctx context.Context, key string) (durable.OutputWriter, error) {
	if strings.Contains(key, "/events/") {
		s.page()
	}
	return s.OutputStore.Create(ctx, key)
}

// TestHistories simulates a week of a session in a short time on a server: the session
// hibernates, moves to a new machine, loses one, continues as new, and is destroyed while
// it does so. The recorded history must replay.
func TestHistories(t *testing.T) {
	emulator := sandboxtest.New(t, nil)
	srv, _ := startTemporal(t)
	c, err := srv.Dial(t.Context(), client.Options{Logger: quiet, Identity: "worker"})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	var sessions *session.Client
	var id string
	var rolls int
	var mu sync.Mutex
	output := pageStore{durable.Dir(t.TempDir()), func() {
		mu.Lock()
		defer mu.Unlock()
		if rolls++; rolls == 2 { // when the session continues as new for the second time
			assert.NoError(t, sessions.Destroy(t.Context(), id, nil))
		}
	}}
	w := worker.New(c, queue, worker.Options{})
	session.Register(w, &durable.Worker{Client: emulator.Client(), Output: output})
	require.NoError(t, w.Start())
	t.Cleanup(w.Stop)
	sessions = session.New(c, &session.Options{
		Sandbox: emulator.Client(), Output: output, Defaults: durable.Options{Heartbeat: 2 * time.Second, Lease: time.Minute},
		Policy: session.Policy{IdleAfter: 700 * time.Millisecond, MaxLifetime: 2 * time.Second, RefreshMargin: 500 * time.Millisecond, HistoryLimit: 100, KeepEvents: 5},
	})
	mu.Lock()
	id, err = sessions.Start(t.Context(), &session.StartOptions{ID: "week"})
	mu.Unlock()
	require.NoError(t, err)

	// requireAccepted requires that a call succeeded, unless the session was destroyed in
	// the meantime. The viewer sees that only later.
	requireAccepted := func(err error) {
		t.Helper()
		mu.Lock()
		defer mu.Unlock()
		if rolls < 2 || !errors.Is(err, session.ErrDestroyed) {
			require.NoError(t, err)
		}
	}
	send := func(script string) string {
		command, err := sessions.Command(t.Context(), id, session.Command{Command: script, Key: script})
		requireAccepted(err)
		return command
	}
	// The viewer is also the user: the events decide what it does next.
	seen := map[string]int{}
	var last string
	sent := 0
	for e, err := range sessions.Events(t.Context(), id, session.Cursor{}) {
		require.NoError(t, err)
		word := e.Type
		if e.Type == session.TypeStatus {
			word = e.State
		}
		seen[word]++
		switch {
		case word == session.StateActive && last == "":
			last = send("echo kept > f; sleep 1.6") // runs until less than RefreshMargin remains
		case word == session.TypeCommandOutput && e.Data == "begun\n":
			require.True(t, emulator.Crash("durable-"+id))
		case word == session.StateHibernated:
			switch sent++; sent {
			case 2:
				last = send("echo begun; sleep 1000")
			case 20:
				require.Fail(t, "the destroy that came while the session continued as new is lost")
			default:
				send(fmt.Sprintf("cat f; echo %d", sent))
			}
		}
	}
	require.NotEmpty(t, last)
	assert.Positive(t, seen[session.StateRefreshing])
	assert.Greater(t, seen[session.StateHibernating], 2)
	assert.Equal(t, 1, seen[session.TypeResult])

	record(t, c, id)
}

// chain returns the histories of a workflow's runs.
func chain(t *testing.T, c client.Client, id string) (runs []*history.History) {
	d, err := c.DescribeWorkflowExecution(t.Context(), id, "")
	require.NoError(t, err)
	for run := d.GetWorkflowExecutionInfo().GetFirstRunId(); run != ""; {
		h := new(history.History)
		for it := c.GetWorkflowHistory(t.Context(), id, run, false, enums.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT); it.HasNext(); {
			e, err := it.Next()
			require.NoError(t, err)
			h.Events = append(h.Events, e)
		}
		runs = append(runs, h)
		run = h.Events[len(h.Events)-1].GetWorkflowExecutionContinuedAsNewEventAttributes().GetNewExecutionRunId()
	}
	return runs
}
