package sessiontest

import (
	"context"
	"errors"
	"sync"

	"go.temporal.io/api/common/v1"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/history/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/testsuite"

	"github.com/go-vercel/sandbox/durable/durabletest"
)

// temporal is a client of a cluster with one workflow, that of the test environment. It does
// everything in the environment's loop, because the environment has no lock.
type temporal struct {
	client.Client // nil: sessions use only the methods below
	env           *durabletest.Env
	id, workflow  string
	input         []any
	over          chan struct{} // closed at the end of the loop

	mu      sync.Mutex
	running bool
	// working counts the running functions of the test, without those that wait for an
	// answer. Time stands still until it is 0.
	working int
	change  *sync.Cond
}

func newTemporal(env *durabletest.Env) *temporal {
	t := &temporal{env: env, over: make(chan struct{})}
	t.change = sync.NewCond(&t.mu)
	return t
}

func (t *temporal) addWorking(n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.working += n
	t.change.Broadcast()
}

// waitIdle waits in the loop for the running functions.
func (t *temporal) waitIdle() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for t.working > 0 {
		t.change.Wait()
	}
}

// run runs the loop. It reports whether there is a workflow.
func (t *temporal) run() bool {
	if t.workflow == "" {
		return false
	}
	t.mu.Lock()
	t.running = true
	t.mu.Unlock()
	defer close(t.over)
	t.env.ExecuteWorkflow(t.workflow, t.input...)
	return true
}

var errNone = serviceerror.NewNotFound("sessiontest: no such workflow runs")

// inLoop calls f in the loop and waits for its answer. It returns false if the loop does
// not run.
func (t *temporal) inLoop(id string, f func(answer func())) bool {
	t.mu.Lock()
	running := t.running && id == t.id
	t.mu.Unlock()
	if !running {
		return false
	}
	answered := make(chan struct{})
	t.env.RegisterDelayedCallback(func() {
		f(func() {
			t.addWorking(1)
			close(answered)
			t.waitIdle()
		})
	}, 0)
	t.addWorking(-1)
	select {
	case <-answered:
		return true
	case <-t.over:
	}
	select {
	case <-answered: // answered just before the end
		return true
	default:
		t.addWorking(1)
		return false
	}
}

func (t *temporal) ExecuteWorkflow(_ context.Context, o client.StartWorkflowOptions, workflow any, args ...any) (client.WorkflowRun, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.id == o.ID && o.WorkflowIDConflictPolicy == enums.WORKFLOW_ID_CONFLICT_POLICY_USE_EXISTING:
		return nil, nil //nolint:nilnil // nobody uses the result
	case t.id != "":
		return nil, errors.New("sessiontest: an environment has one session")
	}
	t.id, t.workflow, t.input = o.ID, workflow.(string), args
	t.env.SetStartWorkflowOptions(o)
	return nil, nil //nolint:nilnil // nobody uses the result
}

func (t *temporal) UpdateWorkflow(_ context.Context, o client.UpdateWorkflowOptions) (client.WorkflowUpdateHandle, error) {
	u := &update{}
	answered := t.inLoop(o.WorkflowID, func(answer func()) {
		t.env.UpdateWorkflow(o.UpdateName, o.UpdateID, &testsuite.TestUpdateCallback{
			OnAccept: func() {},
			OnReject: func(err error) {
				u.err = err
				answer()
			},
			OnComplete: func(value any, err error) {
				if u.err = err; err == nil {
					u.value, u.err = t.encode(value)
				}
				answer()
			},
		}, o.Args...)
	})
	if !answered {
		return nil, errNone
	}
	return u, nil
}

func (t *temporal) encode(value any) (converter.EncodedValue, error) {
	payloads, err := converter.GetDefaultDataConverter().ToPayloads(value)
	return client.NewValue(payloads), err
}

// update is an update with its answer.
type update struct {
	client.WorkflowUpdateHandle // nil: sessions use only Get
	value                       converter.EncodedValue
	err                         error
}

func (u *update) Get(_ context.Context, to any) error {
	if u.err != nil || to == nil {
		return u.err
	}
	return u.value.Get(to)
}

// queryEvents is the query for events. It works only after Run: before, a reader would wait
// for more events while time stands still.
const queryEvents = "sandbox.Session.events"

func (t *temporal) QueryWorkflowWithOptions(_ context.Context, r *client.QueryWorkflowWithOptionsRequest) (*client.QueryWorkflowWithOptionsResponse, error) {
	var value converter.EncodedValue
	var err error
	ask := func() { value, err = t.env.QueryWorkflow(r.QueryType, r.Args...) }
	select {
	case <-t.over:
		if r.WorkflowID != t.id {
			return nil, errNone
		}
		t.mu.Lock()
		defer t.mu.Unlock()
		ask()
	default:
		if r.QueryType == queryEvents {
			return nil, errors.New("sessiontest: events can be read once Run has returned")
		}
		if !t.inLoop(r.WorkflowID, func(answer func()) {
			ask()
			answer()
		}) {
			return nil, errNone
		}
	}
	return &client.QueryWorkflowWithOptionsResponse{QueryResult: value}, err
}

func (t *temporal) DescribeWorkflowExecution(_ context.Context, id, _ string) (*workflowservice.DescribeWorkflowExecutionResponse, error) {
	if t.workflow == "" || id != t.id {
		return nil, errNone
	}
	return &workflowservice.DescribeWorkflowExecutionResponse{
		WorkflowExecutionInfo: &workflow.WorkflowExecutionInfo{Type: &common.WorkflowType{Name: t.workflow}},
	}, nil
}

// GetWorkflowHistory returns a history that has ended, so that readers get all events.
func (t *temporal) GetWorkflowHistory(_ context.Context, id, _ string, _ bool, _ enums.HistoryEventFilterType) client.HistoryEventIterator {
	if id != t.id {
		return &endedHistory{}
	}
	return &endedHistory{[]*history.HistoryEvent{{
		EventType: enums.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED,
		Attributes: &history.HistoryEvent_WorkflowExecutionStartedEventAttributes{
			WorkflowExecutionStartedEventAttributes: &history.WorkflowExecutionStartedEventAttributes{OriginalExecutionRunId: "default-test-run-id"},
		},
	}, {EventType: enums.EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED}}}
}

type endedHistory struct{ events []*history.HistoryEvent }

func (p *endedHistory) HasNext() bool { return len(p.events) > 0 }

func (p *endedHistory) Next() (*history.HistoryEvent, error) {
	e := p.events[0]
	p.events = p.events[1:]
	return e, nil
}
