package session

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/api/common/v1"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/workflow"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/durable"
	"github.com/go-vercel/sandbox/internal/test/needs"
	"github.com/go-vercel/sandbox/sandboxtest"
)

// TestOutlastsRefusals: while the platform refuses its requests, a session waits and says
// why. It continues when it is used, or by itself. A session that is destroyed in the
// meantime stops its machine as soon as it can.
func TestOutlastsRefusals(t *testing.T) {
	const cutInEnd = 850 // cuts a response between its first record and the end of its last one; both contain the command
	for _, status := range []int{http.StatusUnauthorized, http.StatusPaymentRequired, http.StatusForbidden, http.StatusBadRequest} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			t.Parallel()
			p := newTestSession(t, nil)
			refuse := func(from, to time.Duration, operation sandboxtest.Operation) {
				var stop func()
				p.At(from, func() {
					stop = p.Server.Inject(sandboxtest.Fault{Operation: operation, Status: status, Message: "not now"})
				})
				p.At(to, func() { stop() })
			}
			const minute = time.Minute
			p.send(minute, "a", "echo kept > f")
			refuse(30*minute, 40*minute, "") // when the session hibernates
			refuse(60*minute, 70*minute, "") // when it wakes
			p.send(61*minute, "b", "cat f")
			p.send(70*minute+time.Second, "hurries", "true")
			refuse(80*minute, 82*minute, "") // when a command starts
			p.send(81*minute, "c", "cat f")
			refuse(90*minute, 95*minute, sandboxtest.GetCommand) // when a command ends, and the response to its start was cut
			p.At(90*minute, func() {
				p.Server.Inject(sandboxtest.Fault{Operation: sandboxtest.RunCommand, CutAfterBytes: cutInEnd, Times: 1})
			})
			p.send(91*minute, "d", "echo out; exit 4")
			refuse(110*minute, 120*minute, "") // when it is destroyed
			p.send(111*minute, "e", "echo never")
			p.At(115*minute, func() { p.sendUpdate(updateDestroy, DestroyOptions{}) })
			events := p.run(Policy{})
			require.NoError(t, p.GetWorkflowError())

			assert.Equal(t, []string{
				"active", "cmd-1 exited 0", "hibernating", "blocked", "hibernating", "hibernated",
				"resuming", "blocked", "resuming", "active", "cmd-2 exited 0", "cmd-3 exited 0",
				"blocked", "active", "cmd-4 exited 0",
				"blocked", "active", "cmd-5 exited 4",
				"blocked", "cmd-6 lost", "destroyed", "destroyed",
			}, story(events))
			assert.Equal(t, "kept\n", p.output("cmd-2"))
			assert.Equal(t, "out\n", p.output("cmd-5"))
			for _, e := range events {
				if e.State == StateBlocked {
					assert.Contains(t, e.Error, "not now")
				}
				if e.Type == TypeCommandEnd && e.ID == "cmd-2" {
					assert.Less(t, e.At.Time().Sub(events[0].At.Time()), 71*minute, "the session retries when it is used, not at the end of the pause")
				}
			}
			for info, err := range p.Server.Client().List(t.Context(), nil) {
				require.NoError(t, err)
				assert.Equal(t, sandbox.StatusStopped, info.Status)
			}
		})
	}
}

// TestCarriedStateIsBounded: what a session carries over continue-as-new is always below
// Temporal's limit for a payload, even with commands and keys that are six times as long in
// JSON.
func TestCarriedStateIsBounded(t *testing.T) {
	const payload = 2 << 20
	hash := strings.Repeat("0", 64)
	for name, text := range map[string]string{"plain": "x", "escaped": "<", "control": "\x01", "wide": "\u2028", "broken": "\xff"} {
		sizes := []int{1, MaxCommand, 100, 60 << 10}
		if !needs.Slow() {
			sizes = sizes[:2]
		}
		for _, size := range sizes {
			t.Run(fmt.Sprint(name, " ", size), func(t *testing.T) {
				r := &run{state: &state{}, in: input{Policy: Policy{QueueLimit: 1_000_000}.withDefaults()}}
				script := strings.Repeat(text, size/len(text)+1)[:size]
				taken := 0
				for taken < queueBytes/(queued{Command: script}.size())-3 || r.acceptCommand(nil, commandUpdate{Command: script}) == nil {
					taken++
					r.Queue = append(r.Queue, queued{ID: fmt.Sprintf("cmd-%d", taken), Command: script})
					r.interrupts = append(r.interrupts, interrupt{fmt.Sprintf("cmd-%d", taken), 9}, interrupt{fmt.Sprintf("cmd-%d", taken), 9}, interrupt{"cmd-none", 9})
				}
				require.Positive(t, taken)
				for r.acceptCommand(nil, commandUpdate{Text: hash}) == nil { // the hash of a text in the store
					taken++
					r.Queue = append(r.Queue, queued{ID: fmt.Sprintf("cmd-%d", taken), Text: hash})
				}
				for i := range 2 * keepKeys {
					r.Keys = append(r.Keys[max(len(r.Keys)+1-keepKeys, 0):], keyed{shortenKey(fmt.Sprint(i, strings.Repeat(text, 190))), fmt.Sprintf("cmd-%d", 1_000_000+i)})
				}
				for n := 0; n == 0 || eventsSize(r.Events) < keepBytes; n++ {
					r.Events = append(r.Events, stored{Event: Event{Command: script, Type: TypeCommandQueued}})
				}
				for len(r.Events) > r.in.Policy.KeepEvents || eventsSize(r.Events) > keepBytes {
					n := pageLength(r.Events)
					data, err := json.Marshal(r.Events[:n])
					require.NoError(t, err)
					assert.Less(t, len(data), payload, "a page")
					r.Events = r.Events[n:]
				}
				for base := range 10_000 {
					r.Pages = append(r.Pages, 1<<30+base)
				}
				r.in.Options.Tags = map[string]string{"a": strings.Repeat("x", optionsBytes-600)}
				require.NoError(t, r.in.check())
				r.Sandbox = &durable.Sandbox{Options: r.in.Options}
				r.Interrupts = r.queuedInterrupts()
				r.in.State = r.state
				carried, err := converter.GetDefaultDataConverter().ToPayload(r.in)
				require.NoError(t, err)
				assert.Less(t, len(carried.GetData()), payload, "with %d commands", taken)
			})
		}
	}
}

// TestOptionsAreBounded: options that are too large to be carried over are refused at the
// start.
func TestOptionsAreBounded(t *testing.T) {
	_, err := New(nil, nil).Start(t.Context(), &StartOptions{Sandbox: &durable.Options{Tags: map[string]string{"a": strings.Repeat("<", optionsBytes/6)}}})
	require.ErrorIs(t, err, sandbox.ErrInvalid)
	require.ErrorContains(t, err, "bytes of JSON")
}

// memory is a store in memory.
type memory map[string][]byte

type memoryWriter struct {
	bytes.Buffer
	m   memory
	key string
}

func (w *memoryWriter) Commit() error { w.m[w.key] = w.Bytes(); return nil }
func (w *memoryWriter) Close() error  { return nil }

func (m memory) Create(_ context.Context, key string) (durable.OutputWriter, error) {
	return &memoryWriter{m: m, key: key}, nil
}

func (m memory) Open(_ context.Context, key string) (io.ReadCloser, error) {
	data, ok := m[key]
	if !ok {
		return nil, fs.ErrNotExist
	}
	return io.NopCloser(bytes.NewReader(data)), nil
}

func (m memory) Remove(context.Context, string) error { return nil }

// TestPages: a viewer finds all events of a session with several stored pages, from any
// position.
func TestPages(t *testing.T) {
	r, a := &run{state: &state{}}, archive{memory{}}
	for page := range 10 {
		var events []stored
		for n := range page%3 + 1 {
			events = append(events, stored{Event: Event{Seq: r.Base + n}})
		}
		kept, err := a.put(t.Context(), "a", r.Base, events)
		require.NoError(t, err)
		require.True(t, kept)
		r.Pages = append(r.Pages, r.Base)
		r.Base += len(events)
	}
	for seq := range r.Base {
		events, err := a.get(t.Context(), "a", r.page(seq).Stored, seq)
		require.NoError(t, err)
		require.NotEmpty(t, events, "from %d", seq)
		require.Equal(t, seq, events[0].Event.Seq)
	}
	events, err := a.get(t.Context(), "a", r.Pages[len(r.Pages)-1], r.Base)
	require.NoError(t, err)
	assert.Empty(t, events)
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

// TestKeysStayKnown: a long key is recognized by its hash.
func TestKeysStayKnown(t *testing.T) {
	long := strings.Repeat("<", 200)
	r := &run{state: &state{Keys: []keyed{{shortenKey(long + "x"), "cmd-2"}, {"short", "cmd-3"}}}}
	for key, id := range map[string]string{long: "", long + "x": "cmd-2", "short": "cmd-3", "other": "", "": ""} {
		assert.Equal(t, id, r.commandOfKey(key), "%.10q", key)
	}
}

// TestCallsAreBounded: whatever is sent to a session while a command runs, its owner can
// still interrupt and destroy it. All calls stay within Temporal's limit for one run.
func TestCallsAreBounded(t *testing.T) {
	const updates = 2000 // Temporal's limit for one run
	r := &run{state: &state{Counter: 1, Keys: []keyed{{"a", "cmd-1"}}}, begun: "cmd-1", in: input{Policy: Policy{}.withDefaults()}}
	taken := 0
	for r.acceptCommand(nil, commandUpdate{Key: "a"}) == nil && taken <= updates { // the same command again and again
		id, err := r.enqueue(nil, commandUpdate{Key: "a"})
		require.NoError(t, err)
		require.Equal(t, "cmd-1", id)
		taken++
	}
	assert.Equal(t, maxCalls, taken)
	for r.acceptInterrupt(nil, interrupt{"cmd-1", 2}) == nil && taken <= updates {
		_, err := r.interrupt(nil, interrupt{"cmd-1", 2})
		require.NoError(t, err)
		r.interrupts = nil // as if the command had received the interrupt
		taken++
	}
	assert.Equal(t, maxInterruptCalls, taken)
	assert.Less(t, taken, updates)
	require.NoError(t, r.checkOpen(), "the session can be destroyed")
	r.begun, r.calls = "", 0 // the next run
	require.NoError(t, r.acceptCommand(nil, commandUpdate{Key: "b"}), "the session accepts commands again once the command has ended")
	require.ErrorContains(t, r.acceptInterrupt(nil, interrupt{"cmd-1", 2}), "nothing", "a refusal leaves no trace in the history")
}

// TestCallsWhileRefused: while the platform refuses, a run of the workflow never accepts so
// many calls that it cannot be destroyed. After that, the next run begins and accepts calls
// again.
func TestCallsWhileRefused(t *testing.T) {
	t.Parallel()
	for _, destroyed := range []bool{true, false} {
		p := newTestSession(t, nil)
		p.send(time.Minute, "a", "true")
		p.At(40*time.Minute, func() { // the session has hibernated
			stop := p.Server.Inject(sandboxtest.Fault{Status: http.StatusUnauthorized})
			p.RegisterDelayedCallback(stop, 30*time.Minute)
		})
		p.update(41*time.Minute, "hold", updateHold, holdUpdate{"a", time.Minute})
		calls := []func(key string){
			func(key string) { p.update(0, key, updateHold, holdUpdate{"a", time.Minute}) },
			func(key string) { p.send(0, key, "true") },
		}
		// Send more calls than the session accepts. Don't count holds, because only few of
		// them may wait.
		all := (maxCalls + 100) * len(calls) / (len(calls) - 1)
		var next func(i int)
		next = func(i int) { // not all at once: the environment's buffers are limited
			for range 50 {
				if i >= all {
					return
				}
				calls[i%len(calls)](fmt.Sprint(i))
				i++
			}
			p.RegisterDelayedCallback(func() { next(i) }, time.Millisecond)
		}
		p.At(42*time.Minute, func() { next(0) })
		if destroyed {
			p.update(50*time.Minute, "destroy", updateDestroy, DestroyOptions{})
		}
		p.ExecuteWorkflow(Workflow, input{Policy: Policy{QueueLimit: 2000}})
		taken := 0
		for _, outcome := range p.outcomes {
			if !strings.HasPrefix(outcome, "refused") {
				taken++
			}
		}
		assert.Less(t, taken, maxCalls+10)
		assert.Greater(t, taken, rollCalls)
		assert.Equal(t, destroyed, p.outcomes["destroy"] == "done")
		assert.Equal(t, !destroyed, workflow.IsContinueAsNewError(p.GetWorkflowError()), "%v", p.GetWorkflowError())
	}
}

// TestSecret: a secret command runs, and the workflow never gets its text. Another command
// is sent whole, up to MaxCommand.
func TestSecret(t *testing.T) {
	u := &updateRecorder{}
	c := New(u, &Options{Output: durable.Dir(t.TempDir())})
	c.remember("ses-1")
	_, err := c.Command(t.Context(), "ses-1", Command{Command: "echo s3cret", Secret: true})
	require.NoError(t, err)
	assert.Equal(t, []any{commandUpdate{Text: textName("echo s3cret")}}, u.args)
	e, err := c.archive.event(t.Context(), "ses-1", stored{Text: textName("echo s3cret")})
	require.NoError(t, err)
	assert.Equal(t, "echo s3cret", e.Command)
	_, err = New(u, nil).Command(t.Context(), "ses-1", Command{Command: "echo s3cret", Secret: true})
	require.ErrorIs(t, err, sandbox.ErrInvalid)
	whole := strings.Repeat("x", MaxCommand)
	_, err = c.Command(t.Context(), "ses-1", Command{Command: whole})
	require.NoError(t, err)
	assert.Equal(t, commandUpdate{Command: whole}, u.args[1])
	_, err = c.Command(t.Context(), "ses-1", Command{Command: whole + "x"})
	require.ErrorIs(t, err, sandbox.ErrInvalid)
	assert.Len(t, u.args, 2)
}

// updateRecorder is a cluster that records the updates of a session.
type updateRecorder struct {
	client.Client
	args []any
}

func (u *updateRecorder) DescribeWorkflowExecution(context.Context, string, string) (*workflowservice.DescribeWorkflowExecutionResponse, error) {
	return &workflowservice.DescribeWorkflowExecutionResponse{WorkflowExecutionInfo: &workflowpb.WorkflowExecutionInfo{Type: &common.WorkflowType{Name: workflowName}}}, nil
}

func (u *updateRecorder) QueryWorkflowWithOptions(context.Context, *client.QueryWorkflowWithOptionsRequest) (*client.QueryWorkflowWithOptionsResponse, error) {
	payloads, err := converter.GetDefaultDataConverter().ToPayloads(decided{})
	return &client.QueryWorkflowWithOptionsResponse{QueryResult: client.NewValue(payloads)}, err
}

func (u *updateRecorder) UpdateWorkflow(_ context.Context, o client.UpdateWorkflowOptions) (client.WorkflowUpdateHandle, error) {
	u.args = append(u.args, o.Args...)
	return acceptedUpdate{}, nil
}

type acceptedUpdate struct{ client.WorkflowUpdateHandle }

func (acceptedUpdate) Get(context.Context, any) error { return nil }
