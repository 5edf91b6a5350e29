package session

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/history/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
)

// histories are the files of those that were recorded.
func histories(t *testing.T) []string {
	files, err := filepath.Glob("testdata/histories/*.json")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	return files
}

func readHistory(t *testing.T, file string) *history.History {
	f, err := os.Open(file)
	require.NoError(t, err)
	defer f.Close()
	h, err := client.HistoryFromJSON(f, client.HistoryJSONOptions{})
	require.NoError(t, err)
	return h
}

func replay(t *testing.T, file string) error { return replayHistory(readHistory(t, file)) }

func replayHistory(h *history.History) error {
	r, err := worker.NewWorkflowReplayerWithOptions(worker.WorkflowReplayerOptions{DisableDeadlockDetection: true}) // the machine may be busy
	if err != nil {
		return err
	}
	r.RegisterWorkflowWithOptions(Workflow, workflow.RegisterOptions{Name: workflowName})
	return r.ReplayWorkflowHistory(nil, h)
}

// TestReplay replays histories that older versions have written: sessions live
// for weeks, so the workflow's code has to make the same decisions as then. A
// change that does not goes behind workflow.GetVersion.
func TestReplay(t *testing.T) {
	for _, file := range histories(t) {
		t.Run(filepath.Base(file), func(t *testing.T) {
			require.NoError(t, replay(t, file))
		})
	}
}

// TestReplayNotices: both sides of a change are among the recorded histories, and
// one that was written by other code does not replay.
func TestReplayNotices(t *testing.T) {
	marked, unmarked := 0, 0
	for _, file := range histories(t) {
		h := readHistory(t, file)
		marker := func(e *history.HistoryEvent) bool { return e.EventType == enums.EVENT_TYPE_MARKER_RECORDED }
		destroyed := func(e *history.HistoryEvent) bool {
			return e.GetWorkflowExecutionSignaledEventAttributes().GetSignalName() == signalDestroy
		}
		last := h.Events[len(h.Events)-1]
		switch {
		case slices.ContainsFunc(h.Events, marker):
			marked++
			for _, e := range h.Events {
				if a := e.GetActivityTaskScheduledEventAttributes(); a != nil && a.ActivityType.Name == "sandbox.Stop" {
					a.ActivityType.Name = "sandbox.Delete" // what other code could have decided
				}
			}
			err := replayHistory(h)
			if assert.Error(t, err, file) {
				assert.True(t, strings.Contains(err.Error(), "nondeterministic"), "%v", err)
			}
		case slices.ContainsFunc(h.Events, destroyed) && last.EventType == enums.EVENT_TYPE_WORKFLOW_EXECUTION_CONTINUED_AS_NEW:
			unmarked++ // it continued as new although it was destroyed meanwhile
		}
	}
	assert.Positive(t, marked, "of this version")
	assert.Positive(t, unmarked, "of one before the change")
}
