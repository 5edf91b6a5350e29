package session

import (
	"compress/gzip"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/api/history/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
)

// histories returns the files of the recorded histories.
func histories(t *testing.T) []string {
	files, err := filepath.Glob("testdata/histories/*.json.gz")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	return files
}

func readHistory(t *testing.T, file string) *history.History {
	f, err := os.Open(file)
	require.NoError(t, err)
	defer f.Close()
	data, err := gzip.NewReader(f)
	require.NoError(t, err)
	h, err := client.HistoryFromJSON(data, client.HistoryJSONOptions{})
	require.NoError(t, err)
	return h
}

func replay(t *testing.T, file string) error { return replayHistory(readHistory(t, file)) }

func replayHistory(h *history.History, with ...interceptor.WorkerInterceptor) error {
	r, err := worker.NewWorkflowReplayerWithOptions(worker.WorkflowReplayerOptions{
		Interceptors: with, DisableDeadlockDetection: true, // the machine may be busy
	})
	if err != nil {
		return err
	}
	r.RegisterWorkflowWithOptions(Workflow, workflow.RegisterOptions{Name: workflowName})
	return r.ReplayWorkflowHistory(nil, h)
}

// TestReplay replays recorded histories. Sessions live for weeks, so the code must make the
// same decisions as when they were recorded. A change of decisions needs
// workflow.GetVersion.
func TestReplay(t *testing.T) {
	for _, file := range histories(t) {
		t.Run(filepath.Base(file), func(t *testing.T) {
			require.NoError(t, replay(t, file))
		})
	}
}

// TestReplayNotices: a history that other code has recorded does not replay.
func TestReplayNotices(t *testing.T) {
	noticed := 0
	for _, file := range histories(t) {
		h := readHistory(t, file)
		changed := false
		for _, e := range h.Events {
			if a := e.GetActivityTaskScheduledEventAttributes(); a != nil && a.ActivityType.Name == "sandbox.Stop" {
				a.ActivityType.Name = "sandbox.Delete" // a decision that other code could have made
				changed = true
			}
		}
		if !changed {
			continue
		}
		if err := replayHistory(h); assert.Error(t, err, file) {
			assert.Contains(t, err.Error(), "nondeterministic")
			noticed++
		}
	}
	assert.Positive(t, noticed)
}

// eventReader gets the events of a replayed workflow.
type eventReader struct {
	interceptor.WorkerInterceptorBase
	events  []Event
	queries []string // the queries that the workflow answers
}

func (l *eventReader) InterceptWorkflow(_ workflow.Context, next interceptor.WorkflowInboundInterceptor) interceptor.WorkflowInboundInterceptor {
	return &readerInbound{interceptor.WorkflowInboundInterceptorBase{Next: next}, &readerOutbound{l: l}}
}

type readerInbound struct {
	interceptor.WorkflowInboundInterceptorBase
	out *readerOutbound
}

func (i *readerInbound) Init(next interceptor.WorkflowOutboundInterceptor) error {
	i.out.Next = next
	return i.Next.Init(i.out)
}

func (i *readerInbound) ExecuteWorkflow(ctx workflow.Context, in *interceptor.ExecuteWorkflowInput) (any, error) {
	result, err := i.Next.ExecuteWorkflow(ctx, in)
	first, _ := i.out.query(0)
	for from := first.Base; ; {
		p, _ := i.out.query(from)
		for _, e := range p.Events {
			i.out.l.events = append(i.out.l.events, e.Event)
		}
		if from += len(p.Events); len(p.Events) == 0 {
			return result, err
		}
	}
}

type readerOutbound struct {
	interceptor.WorkflowOutboundInterceptorBase
	l     *eventReader
	query func(from int) (page, error)
}

func (o *readerOutbound) SetQueryHandler(ctx workflow.Context, name string, handler any) error {
	o.l.queries = append(o.l.queries, name)
	if query, ok := handler.(func(int) (page, error)); ok {
		o.query = query
	}
	return o.Next.SetQueryHandler(ctx, name, handler)
}

// inCode returns the first group of each match of a pattern in files of the code.
func inCode(t *testing.T, pattern string, globs ...string) (found []string) {
	for _, glob := range globs {
		files, err := filepath.Glob(glob)
		require.NoError(t, err)
		for _, file := range files {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			for _, match := range regexp.MustCompile(pattern).FindAllStringSubmatch(string(text), -1) {
				found = append(found, match[1])
			}
		}
	}
	require.NotEmpty(t, found)
	return found
}

// TestRecordedKinds: each kind of event is in a recorded history.
func TestRecordedKinds(t *testing.T) {
	seen := map[string]bool{}
	for _, file := range histories(t) {
		l := &eventReader{}
		require.NoError(t, replayHistory(readHistory(t, file), l), file)
		for _, e := range l.events {
			seen[e.Type], seen[e.State], seen[e.Status], seen[string(e.Outcome)] = true, true, true, true
		}
	}
	kinds := append(inCode(t, `(?m)^\t(?:Type|State)\w+\s+= "(\w+)"`, "event.go"), inCode(t, `Outcome = "(\w+)"`, "../command.go")...)
	kinds = append(kinds, inCode(t, `(?:Outcome|Status)\b.*= "(\w+)"`, "running.go", "workflow.go")...)
	require.Subset(t, kinds, []string{TypeCreated, StateRolledBack, "lost", "failed"})
	for _, kind := range kinds {
		switch kind {
		case TypeCommandOutput, TypeOutputLost, TypeTruncated, StateTerminated: // only viewers see these
			assert.False(t, seen[kind], kind)
		default:
			assert.True(t, seen[kind], "no recorded history has an event of the kind %s", kind)
		}
	}
}
