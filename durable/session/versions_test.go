package session

import (
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/workflow"

	"github.com/go-vercel/sandbox/durable"
	"github.com/go-vercel/sandbox/durable/durabletest"
	"github.com/go-vercel/sandbox/internal/testkit"
	"github.com/go-vercel/sandbox/sandboxtest"
)

// changes has for each change of what the workflow decides a session in which it
// shows. The function reports whether the decision was the one since the change;
// version makes an environment take that of either.
var changes = map[string]func(t *testing.T, version func(*play) *play) (since bool){
	"signals-while-rolling": func(t *testing.T, version func(*play) *play) bool {
		var p *play
		var once sync.Once
		p = version(newPlay(t, &durabletest.Options{Output: storeOf{durable.Dir(t.TempDir()), func() {
			once.Do(func() { p.SignalWorkflow(signalDestroy, DestroyOptions{}) })
		}}}))
		p.send(time.Minute, "a", "true")
		p.At(2*time.Minute, func() { p.SetCurrentHistoryLength(100) })
		p.send(3*time.Minute, "b", "true")
		p.ExecuteWorkflow(Workflow, input{Policy: Policy{HistoryLimit: 50, KeepEvents: 3}})
		return !workflow.IsContinueAsNewError(p.GetWorkflowError())
	},
	"rolls-with-queue": func(t *testing.T, version func(*play) *play) bool {
		_, carried := version(newPlay(t, nil)).busy(Policy{HistoryLimit: 50})
		return len(carried.State.Queue) > 0
	},
	"refreshes-with-queue": func(t *testing.T, version func(*play) *play) bool {
		p, carried := newPlay(t, nil).busy(Policy{MaxLifetime: 2 * time.Hour, HistoryLimit: 50})
		version(p)
		p.SetStartTime(p.Now().Add(115 * time.Minute))
		p.Join()
		p.destroyAt(time.Minute)
		p.ExecuteWorkflow(Workflow, carried)
		require.NoError(t, p.GetWorkflowError())
		words := story(p.events())
		return slices.Index(words, StateRefreshing) < slices.Index(words, "cmd-2 exited 0")
	},
	"outlasts-refused-signals": func(t *testing.T, version func(*play) *play) bool {
		p := version(newPlay(t, nil))
		p.send(time.Minute, "a", "echo up; sleep 1000")
		p.on(p.whenRead("up"), func() {
			p.Server.Inject(sandboxtest.Fault{Operation: sandboxtest.KillCommand, Status: http.StatusForbidden, Code: "forbidden"})
			p.SignalWorkflow(signalDestroy, DestroyOptions{})
		})
		p.run(Policy{})
		return p.GetWorkflowError() == nil
	},
	"measures-events-as-json": func(t *testing.T, version func(*play) *play) bool {
		p := version(newPlay(t, nil))
		p.At(time.Minute, func() { p.SetCurrentHistoryLength(100) })
		p.send(2*time.Minute, "a", ": '"+strings.Repeat("<", 48<<10)+"'")
		p.ExecuteWorkflow(Workflow, input{Policy: Policy{HistoryLimit: 50}})
		_, carried := p.continued()
		return carried.State.Base > 0
	},
	"escalates-interrupts": func(t *testing.T, version func(*play) *play) bool {
		p := version(newPlay(t, nil))
		p.send(time.Minute, "a", "trap 'n=$((n+1)); [ $n -ge 2 ] && exit 7' INT; echo up; while :; do sleep 0.05; done")
		p.send(time.Minute, "b", "echo next")
		p.on(p.whenRead("up"), func() {
			next := func(r sandboxtest.Request) bool { return strings.Contains(string(r.Body), "echo next") }
			for !slices.ContainsFunc(p.Server.Requests(), next) && t.Context().Err() == nil {
				p.SignalWorkflow(signalInterrupt, interrupt{"cmd-1", 2})
				testkit.Linger(100 * time.Millisecond)
			}
		})
		p.destroyAt(20 * time.Minute)
		words := story(p.run(Policy{}))
		return slices.Contains(words, "cmd-1 killed 137")
	},
	"holds": func(t *testing.T, version func(*play) *play) bool {
		p := version(newPlay(t, nil))
		p.update(time.Minute, "hold", updateHold, holdUpdate{"a", time.Minute})
		p.destroyAt(5 * time.Minute)
		p.run(Policy{})
		return p.outcomes["hold"] == "done"
	},
	"sandbox-outlasts-refusals": func(t *testing.T, version func(*play) *play) bool {
		p := version(newPlay(t, nil))
		p.send(time.Minute, "a", "true")
		var allow func()
		p.At(30*time.Minute, func() { // it hibernates
			allow = p.Server.Inject(sandboxtest.Fault{Status: http.StatusUnauthorized})
		})
		p.At(40*time.Minute, func() { allow() })
		p.destroyAt(2 * time.Hour)
		p.run(Policy{})
		return p.GetWorkflowError() == nil
	},
}

// busy plays a session with commands that wait when its history is full.
func (p *play) busy(policy Policy) (*play, input) {
	p.At(time.Minute, func() { p.SetCurrentHistoryLength(100) })
	for _, key := range []string{"a", "b", "c"} {
		p.send(2*time.Minute, key, "true")
	}
	p.ExecuteWorkflow(Workflow, input{Policy: policy, Options: durable.Options{Lease: 3 * time.Hour}})
	return p.continued()
}

// TestVersions: a session that began before a change of what the workflow decides
// goes on as it began, and one that begins now decides as now. Without its
// GetVersion a change fails here.
func TestVersions(t *testing.T) {
	t.Parallel()
	inCode := inCode(t, changeInCode, "*.go", "../*.go")
	for _, change := range inCode {
		assert.Contains(t, changes, change, "a change that no session shows")
	}
	assert.Len(t, inCode, len(changes))
	for change, plays := range changes {
		for name, version := range map[string]workflow.Version{"before": workflow.DefaultVersion, "since": 1} {
			t.Run(change+" "+name, func(t *testing.T) {
				t.Parallel()
				asked := false
				since := plays(t, func(p *play) *play {
					p.OnGetVersion(change, workflow.DefaultVersion, workflow.Version(1)).Return(
						func(string, workflow.Version, workflow.Version) workflow.Version { asked = true; return version })
					return p
				})
				assert.Equal(t, version == 1, since)
				assert.True(t, asked)
			})
		}
	}
}
