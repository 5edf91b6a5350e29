package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/go-vercel/sandbox/durable"
	"github.com/go-vercel/sandbox/durable/durabletest"
)

// continued returns the session in its next run, and the input with the state that was
// carried over.
func (p *testSession) continued() (*testSession, input) {
	next, ok := errors.AsType[*workflow.ContinueAsNewError](p.GetWorkflowError())
	require.True(p.t, ok, "%v", p.GetWorkflowError())
	var carried input
	require.NoError(p.t, converter.GetDefaultDataConverter().FromPayloads(next.Input, &carried))
	require.NotNil(p.t, carried.State)
	again := &testSession{p.t, &durabletest.Env{
		TestWorkflowEnvironment: new(testsuite.WorkflowTestSuite).NewTestWorkflowEnvironment(), Server: p.Server, Worker: p.Worker,
	}, map[string]string{}}
	again.SetTestTimeout(time.Minute)
	again.SetWorkerOptions(worker.Options{DeadlockDetectionTimeout: time.Minute})
	again.SetStartTime(p.Now())
	again.SetStartWorkflowOptions(client.StartWorkflowOptions{ID: "ses-1", TaskQueue: "sandbox"})
	Register(again, again.Worker)
	return again, carried
}

// TestContinueAsNew: a session's state survives continue-as-new.
func TestContinueAsNew(t *testing.T) {
	p := newTestSession(t, nil)
	p.send(time.Minute, "a", "echo kept > f")
	p.At(2*time.Minute, func() { p.SetCurrentHistoryLength(100) })
	p.send(3*time.Minute, "b", "true")
	p.ExecuteWorkflow(Workflow, input{Policy: Policy{HistoryLimit: 50}})
	again, carried := p.continued()
	again.send(time.Minute, "a", "echo never") // the session still knows the key
	again.send(time.Minute, "c", "cat f")
	again.At(20*time.Minute, func() { again.sendUpdate(updateDestroy, DestroyOptions{}) })
	again.ExecuteWorkflow(Workflow, carried)
	require.NoError(t, again.GetWorkflowError())
	events := again.events()
	assert.Equal(t, []string{"active", "cmd-1 exited 0", "cmd-2 exited 0", "cmd-3 exited 0", "destroyed", "destroyed"}, story(events))
	for i, e := range events {
		require.Equal(t, i, e.Seq, "the numbers continue")
	}
	assert.Equal(t, "cmd-1", again.outcomes["a"])
	assert.Equal(t, "kept\n", again.output("cmd-3"))
}

// TestRollsWithQueue: a session with waiting commands also starts a new history, and keeps
// its queue and interrupts.
func TestRollsWithQueue(t *testing.T) {
	p := newTestSession(t, nil)
	p.At(time.Minute, func() { p.SetCurrentHistoryLength(100) })
	for i := range 4 {
		p.send(2*time.Minute, fmt.Sprint(i), fmt.Sprintf("echo %d >> log; cat log", i))
	}
	p.At(2*time.Minute, func() { p.sendUpdate(updateInterrupt, interrupt{"cmd-3", 2}) })
	p.ExecuteWorkflow(Workflow, input{Policy: Policy{HistoryLimit: 50}})
	again, carried := p.continued()
	assert.Len(t, carried.State.Queue, 3)
	again.At(20*time.Minute, func() { again.sendUpdate(updateDestroy, DestroyOptions{}) })
	again.ExecuteWorkflow(Workflow, carried)
	require.NoError(t, again.GetWorkflowError())
	assert.Equal(t, []string{"active", "cmd-1 exited 0", "cmd-2 exited 0", "cmd-3 killed", "cmd-4 exited 0", "destroyed", "destroyed"}, story(again.events()))
	assert.Equal(t, "0\n1\n3\n", again.output("cmd-4"))
}

// TestRefreshesWithQueue: a session with waiting commands moves to a new machine between
// two of them when its machine is near the cap. It keeps its files.
func TestRefreshesWithQueue(t *testing.T) {
	policy := Policy{MaxLifetime: 2 * time.Hour, HistoryLimit: 50}
	p := newTestSession(t, nil)
	p.At(time.Minute, func() { p.SetCurrentHistoryLength(100) })
	for i := range 3 {
		p.send(2*time.Minute, fmt.Sprint(i), fmt.Sprintf("echo %d >> log; cat log", i))
	}
	p.ExecuteWorkflow(Workflow, input{Policy: policy, Options: durable.Options{Lease: 3 * time.Hour}})
	again, carried := p.continued()
	require.Len(t, carried.State.Queue, 2)
	again.SetStartTime(p.Now().Add(115 * time.Minute)) // no worker ran for so long
	again.SyncClocks()
	again.At(time.Minute, func() { again.sendUpdate(updateDestroy, DestroyOptions{}) })
	again.ExecuteWorkflow(Workflow, carried)
	require.NoError(t, again.GetWorkflowError())
	events := again.events()
	assert.Equal(t, []string{
		"active", "cmd-1 exited 0", "refreshing", "active", "cmd-2 exited 0", "cmd-3 exited 0", "destroyed", "destroyed"}, story(events))
	assert.Equal(t, "0\n1\n2\n", again.output("cmd-3"))
	var machines []string
	for _, e := range events {
		if e.Type == TypeCommandStart {
			machines = append(machines, e.SessionID)
		}
	}
	require.Len(t, machines, 3)
	assert.NotEqual(t, machines[0], machines[1])
	assert.Equal(t, machines[1], machines[2])
}

// dir is the folder of the stored pages of a session that is carried over.
func (in input) dir() string { return "ses-1/" + timestamp(in.State.StartedAt) }

// hookedStore calls a function before a page of events is stored.
type hookedStore struct {
	durable.OutputStore
	page func()
}

func (s hookedStore) Create(ctx context.Context, key string) (durable.OutputWriter, error) {
	if strings.Contains(key, "/events/") {
		s.page()
	}
	return s.OutputStore.Create(ctx, key)
}

// TestDestroyWhileRolling: a destroy that arrives while a session continues as new is not
// lost.
func TestDestroyWhileRolling(t *testing.T) {
	t.Parallel()
	var p *testSession
	var once sync.Once
	p = newTestSession(t, &durabletest.Options{Output: hookedStore{durable.Dir(t.TempDir()), func() {
		once.Do(func() { p.sendUpdate(updateDestroy, DestroyOptions{}) })
	}}})
	for i := range 3 {
		p.send(time.Minute, fmt.Sprint(i), "true")
	}
	p.At(2*time.Minute, func() { p.SetCurrentHistoryLength(100) })
	p.send(3*time.Minute, "last", "true")
	p.ExecuteWorkflow(Workflow, input{Policy: Policy{HistoryLimit: 50, KeepEvents: 3}})
	require.NoError(t, p.GetWorkflowError())
	words := story(p.events())
	assert.Equal(t, "destroyed", words[len(words)-1])
}

// TestArchive: events that the workflow no longer keeps are in the store.
func TestArchive(t *testing.T) {
	p := newTestSession(t, nil)
	for i := range 6 {
		p.send(time.Minute, fmt.Sprint(i), "true")
	}
	p.At(2*time.Minute, func() { p.SetCurrentHistoryLength(100) })
	p.send(3*time.Minute, "last", "true")
	p.ExecuteWorkflow(Workflow, input{Policy: Policy{HistoryLimit: 50, KeepEvents: 3}})
	_, carried := p.continued()
	base := carried.State.Base
	require.Positive(t, base)
	r := &run{state: carried.State}
	assert.Equal(t, StateActive, r.describe().State, "the state is known although its event is in the store")
	a := archive{p.Worker.Output}
	seen := 0
	for seq := 0; seq < base; {
		got := r.page(seq)
		events, err := a.get(t.Context(), carried.dir(), got.Stored, seq)
		require.NoError(t, err)
		require.NotEmpty(t, events)
		for _, e := range events {
			require.Equal(t, seen, e.Event.Seq)
			seen++
		}
		seq = seen
	}
	assert.Equal(t, base, seen)
	require.NoError(t, a.clear(t.Context(), "ses-1"))
	events, err := a.get(t.Context(), carried.dir(), 0, 0)
	require.NoError(t, err)
	assert.Empty(t, events)
}

// TestPagesAreBounded: whatever commands are sent, responses and payloads stay below
// Temporal's limits.
func TestPagesAreBounded(t *testing.T) {
	var events []stored
	for i := range 100 {
		events = append(events, stored{Event: Event{Seq: i, Command: strings.Repeat("x", MaxCommand)}})
	}
	for rest := events; len(rest) > 0; {
		n := pageLength(rest)
		require.Positive(t, n)
		data, err := json.Marshal(rest[:n])
		require.NoError(t, err)
		assert.Less(t, len(data), 1<<20)
		rest = rest[n:]
	}
}
