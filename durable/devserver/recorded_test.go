package devserver_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/durable"
	"github.com/go-vercel/sandbox/durable/session"
	"github.com/go-vercel/sandbox/internal/test/testkit"
	"github.com/go-vercel/sandbox/sandboxtest"
)

// recording is a session with a user who reads the events and reacts to them.
type recording struct {
	t        *testing.T
	emulator *sandboxtest.Server
	temporal client.Client
	sessions *session.Client
	id       string
	next     func() (session.Event, error, bool)
}

func (s *recording) send(script string) string {
	id, err := s.sessions.Command(s.t.Context(), s.id, session.Command{Command: script})
	require.NoError(s.t, err)
	return id
}

// until reads to an event with one of these words as its type, state, outcome or output.
func (s *recording) until(words ...string) string {
	s.t.Helper()
	word, _ := s.read(words...)
	return word
}

func (s *recording) read(words ...string) (string, session.Event) {
	s.t.Helper()
	for {
		e, err, ok := s.next()
		require.True(s.t, ok, "the stream ended before %q", words)
		require.NoError(s.t, err)
		for _, word := range words {
			if e.Type == word || e.State == word || string(e.Outcome) == word || word != "" && strings.TrimSpace(e.Data) == word {
				return word, e
			}
		}
	}
}

// refuse makes the service refuse an operation until allow is called.
func (s *recording) refuse(operation sandboxtest.Operation, status int) (allow func()) {
	return s.emulator.Inject(sandboxtest.Fault{Operation: operation, Status: status})
}

// refuseSignals refuses both the script that signals a process with its children and the
// signal to the process alone.
func (s *recording) refuseSignals(status int) (allow func()) {
	script, alone := s.refuse(sandboxtest.RunCommand, status), s.refuse(sandboxtest.KillCommand, status)
	return func() { script(); alone() }
}

func (s *recording) end(o *session.DestroyOptions) {
	s.t.Helper()
	require.NoError(s.t, s.sessions.Destroy(s.t.Context(), s.id, o))
	s.until(session.TypeResult)
}

// recordings are the sessions whose histories are recorded, by their IDs.
var recordings = map[string]struct {
	policy  session.Policy
	sandbox *durable.Options
	play    func(s *recording)
}{
	"rests": {policy: session.Policy{IdleAfter: time.Second}, play: func(s *recording) {
		s.until(session.StateHibernated)
		s.send("echo kept > f; exit 3")
		s.until(session.TypeActivity)
		s.until(session.StateHibernated)
		s.send("echo begun; sleep 1000")
		s.until("begun")
		require.True(s.t, s.emulator.Crash("durable-"+s.id))
		s.until(string(durable.Lost))
		s.send("cat f")
		s.until(session.StateRolledBack)
		s.until(session.StateHibernated)
		require.NoError(s.t, s.emulator.Client().Delete(s.t.Context(), "durable-"+s.id, nil))
		s.send("ls")
		s.until(session.StateReset)
		s.until(session.TypeCommandEnd)
		s.end(&session.DestroyOptions{DeleteSandbox: true, RemoveOutput: true})
	}},
	"rewound": {play: func(s *recording) {
		// Create the guard's directory of the next key, as a lost history could have.
		s.send("d=$(echo /tmp/.durable/durable-*/*.1); mkdir ${d%1}2 && echo other > ${d%1}2/nonce")
		s.until(session.TypeCommandEnd)
		s.send("echo never")
		s.until(session.StateRewound)
		s.send("echo on")
		s.until("on")
		s.end(nil)
	}},
	"interrupted": {play: func(s *recording) {
		first := s.send("echo begun; sleep 1000")
		second := s.send("echo never")
		s.until("begun")
		for _, id := range []string{second, first} {
			require.NoError(s.t, s.sessions.Interrupt(s.t.Context(), s.id, id, sandbox.SIGINT))
		}
		s.until(string(durable.Killed))
		s.until(string(durable.Killed))
		s.end(nil)
	}},
	"rejected": {play: func(s *recording) {
		s.until(session.StateActive)
		allow := s.refuse(sandboxtest.RunCommand, http.StatusBadRequest)
		s.send("true")
		s.until("rejected")
		allow()
		s.end(nil)
	}},
	"given-up": {play: func(s *recording) {
		s.until(session.StateActive)
		allow := s.refuse("", http.StatusPaymentRequired)
		s.send("true")
		s.until(session.StateBlocked)
		require.NoError(s.t, s.sessions.Destroy(s.t.Context(), s.id, nil))
		s.until(string(durable.Lost))
		allow()
		s.until(session.TypeResult)
	}},
	"canceled": {play: func(s *recording) {
		s.send("echo begun; sleep 1000")
		s.until("begun")
		require.NoError(s.t, s.temporal.CancelWorkflow(s.t.Context(), s.id, ""))
		s.until(session.TypeResult)
	}},
	"stored": {policy: session.Policy{HistoryLimit: 20}, play: func(s *recording) {
		s.until(session.StateActive)
		told := session.Command{Command: "echo a told text"}
		secret := session.Command{Command: "echo $((6*7)); : " + strings.Repeat("a secret text ", 1<<10), Secret: true}
		for _, command := range []session.Command{told, secret, secret} {
			_, err := s.sessions.Command(s.t.Context(), s.id, command)
			require.NoError(s.t, err)
			for _, kind := range []string{session.TypeCommandQueued, session.TypeCommandStart} {
				_, e := s.read(kind)
				require.Equal(s.t, command.Command, e.Command)
				require.False(s.t, e.Truncated)
			}
			s.until("42", "a told text")
			s.until(session.TypeCommandEnd)
		}
		s.end(nil)
		for text, want := range map[string]int{"a told text": 2, "a secret text": 0} { // in the events of the queue and of the start
			got := 0
			for _, h := range chain(s.t, s.temporal, s.id) {
				for _, e := range h.Events {
					data, err := proto.Marshal(e)
					require.NoError(s.t, err)
					continues := e.EventType == enums.EVENT_TYPE_WORKFLOW_EXECUTION_CONTINUED_AS_NEW || e.EventType == enums.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED
					if bytes.Contains(data, []byte(text)) && (want == 0 || !continues) {
						got++
					}
				}
			}
			assert.Equal(s.t, want, got, "events of the history with %s", text)
		}
	}},
	"fails": {sandbox: &durable.Options{Name: "no name/at all"}, play: func(s *recording) { s.until(session.TypeResult) }},
	"checkpoints": {policy: session.Policy{CheckpointCommands: 1}, play: func(s *recording) {
		s.send("true")
		s.until(session.StateRefreshing)
		s.until(session.StateActive)
		s.end(nil)
	}},
	"rolls-with-queue": {policy: session.Policy{HistoryLimit: 40}, play: func(s *recording) {
		s.until(session.StateActive)
		for range 6 {
			s.send("sleep 0.2")
		}
		for range 6 {
			s.until(session.TypeCommandEnd)
		}
		s.end(nil)
	}},
	"refreshes-with-queue": {policy: session.Policy{MaxLifetime: 2 * time.Second, RefreshMargin: 500 * time.Millisecond}, play: func(s *recording) {
		s.until(session.StateActive)
		for range 3 {
			s.send("sleep 1.6")
		}
		for range 3 {
			s.until(session.TypeCommandEnd)
		}
		s.end(nil)
	}},
	"outlasts-refused-signals": {play: func(s *recording) {
		id := s.send("echo begun; sleep 1000")
		s.until("begun")
		allow := s.refuseSignals(http.StatusForbidden)
		require.NoError(s.t, s.sessions.Interrupt(s.t.Context(), s.id, id, sandbox.SIGINT))
		blocked := s.until(session.StateBlocked, session.TypeResult) == session.StateBlocked
		allow()
		if blocked {
			require.NoError(s.t, s.sessions.Interrupt(s.t.Context(), s.id, id, sandbox.SIGKILL))
			s.until(string(durable.Killed))
			s.end(nil)
		}
	}},
	"measures-events-as-json": {policy: session.Policy{HistoryLimit: 20}, play: func(s *recording) {
		for range 13 { // together more than 512 KiB of JSON, because "<" is escaped
			s.send(": '" + strings.Repeat("<", 3500) + "'")
			s.until(session.TypeCommandEnd)
		}
		s.send("true")
		s.until(session.TypeCommandEnd)
		s.end(nil)
	}},
	"escalates-interrupts": {play: func(s *recording) {
		id := s.send("trap 'n=$((n+1)); [ $n -ge 2 ] && exit 7' INT; echo begun; while :; do sleep 0.05; done")
		s.until("begun")
		allow := s.refuseSignals(http.StatusServiceUnavailable)
		for range 2 { // the second interrupt comes while the first is in flight
			require.NoError(s.t, s.sessions.Interrupt(s.t.Context(), s.id, id, sandbox.SIGINT))
		}
		allow()
		for runs := true; runs && s.t.Context().Err() == nil; {
			_ = s.sessions.Interrupt(s.t.Context(), s.id, id, sandbox.SIGINT) // the command may have ended
			testkit.Linger(100 * time.Millisecond)
			state, err := s.sessions.State(s.t.Context(), s.id)
			require.NoError(s.t, err)
			runs = state.Running == id
		}
		s.until(string(durable.Killed))
		s.end(nil)
	}},
	"holds": {play: func(s *recording) {
		s.until(session.StateActive)
		_, release, err := s.sessions.Hold(s.t.Context(), s.id)
		require.NoError(s.t, err)
		s.send("true")
		s.until(session.TypeCommandQueued)
		release()
		s.until(session.TypeCommandEnd)
		s.end(nil)
	}},
	"sandbox-outlasts-refusals": {policy: session.Policy{IdleAfter: time.Second}, play: func(s *recording) {
		s.until(session.StateActive)
		allow := s.refuse(sandboxtest.StopSession, http.StatusUnauthorized)
		blocked := s.until(session.StateBlocked, session.TypeResult) == session.StateBlocked
		allow()
		if blocked {
			s.send("true") // so the session tries again at once
			s.until(session.TypeCommandEnd)
			s.end(nil)
		}
	}},
}

// TestRecorded: the history of each kind of session replays. With SANDBOX_RECORD_HISTORY
// the histories become files in that folder.
func TestRecorded(t *testing.T) {
	emulator := sandboxtest.New(t, nil)
	srv, _ := startTemporal(t)
	c, err := srv.Dial(t.Context(), client.Options{Logger: quiet, Identity: "worker"})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	store := durable.Dir(t.TempDir())
	w := worker.New(c, queue, worker.Options{})
	session.Register(w, &durable.Worker{Client: emulator.Client(), Output: store})
	require.NoError(t, w.Start())
	t.Cleanup(w.Stop)
	sessions := session.New(c, &session.Options{Sandbox: emulator.Client(), Output: store, Defaults: durable.Options{Heartbeat: 2 * time.Second}})
	for id, recording := range recordings {
		t.Run(id, func(t *testing.T) {
			s := startRecording(t, emulator, c, sessions, &session.StartOptions{ID: id, Policy: &recording.policy, Sandbox: recording.sandbox})
			recording.play(s)
			record(t, c, id)
		})
	}
}

func startRecording(t *testing.T, emulator *sandboxtest.Server, c client.Client, sessions *session.Client, o *session.StartOptions) *recording {
	id, err := sessions.Start(t.Context(), o)
	require.NoError(t, err)
	next, stop := iter.Pull2(sessions.Events(t.Context(), id, session.Cursor{}))
	t.Cleanup(stop)
	return &recording{t, emulator, c, sessions, id, next}
}

// record replays the history of each run of a session. With SANDBOX_RECORD_HISTORY it
// writes them to files in that folder, for TestReplay of package session.
func record(t *testing.T, c client.Client, id string) {
	r, err := worker.NewWorkflowReplayerWithOptions(worker.WorkflowReplayerOptions{DisableDeadlockDetection: true}) // the machine may be busy
	require.NoError(t, err)
	r.RegisterWorkflowWithOptions(session.Workflow, workflow.RegisterOptions{Name: "sandbox.Session"})
	for n, h := range chain(t, c, id) {
		require.NoError(t, r.ReplayWorkflowHistory(nil, h), "run %d", n)
		dir := os.Getenv("SANDBOX_RECORD_HISTORY")
		if dir == "" {
			continue
		}
		data, err := protojson.Marshal(h)
		require.NoError(t, err)
		f, err := os.Create(filepath.Join(dir, fmt.Sprintf("%s-%d.json.gz", id, n+1)))
		require.NoError(t, err)
		z := gzip.NewWriter(f)
		_, err = z.Write(data)
		require.NoError(t, errors.Join(err, z.Close(), f.Close()))
	}
}
