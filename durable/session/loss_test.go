package session

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/durable"
	"github.com/go-vercel/sandbox/durable/durabletest"
)

// TestLoss: a session reports a loss once, whether starting the machine or starting a
// command shows it. The waiting commands run.
func TestLoss(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		loss, output string
		asleep       bool
	}{
		"files":               {StateReset, "ran\n", false},
		"files, while asleep": {StateReset, "ran\n", true},
		"recent files":        {StateRolledBack, "kept\nran\n", false}, // the hibernation saves the files
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newTestSession(t, nil)
			p.send(time.Minute, "a", "echo kept > f")
			at := 40 * time.Minute // the session hibernates at 31 minutes
			if !c.asleep {
				p.send(at, "wakes", "true")
			}
			p.At(at+time.Minute, func() {
				if c.loss == StateReset {
					assert.NoError(t, p.Server.Client().Delete(t.Context(), "durable-ses-1", nil))
				} else {
					assert.True(t, p.Server.Crash("durable-ses-1"))
				}
			})
			p.send(at+2*time.Minute, "waits", "cat f 2>/dev/null; echo ran")
			p.destroyAt(3 * time.Hour)
			words := story(p.run(Policy{}))
			said := slices.DeleteFunc(slices.Clone(words), func(w string) bool { return w != StateReset && w != StateRolledBack })
			assert.Equal(t, []string{c.loss}, said, "%v", words)
			id := p.outcomes["waits"]
			assert.Less(t, slices.Index(words, c.loss), slices.Index(words, id+" exited 0"), "%v", words)
			assert.Equal(t, c.output, p.output(id))
		})
	}
}

// TestLongSleep: a sleeping session keeps its files longer than the platform's default for
// snapshots.
func TestLongSleep(t *testing.T) {
	t.Parallel()
	for _, days := range []int{29, 31, 400} {
		p := newTestSession(t, nil)
		p.send(time.Minute, "a", "echo precious > f")
		at := time.Duration(days) * 24 * time.Hour
		p.send(at, "b", "cat f")
		p.destroyAt(at + 2*time.Hour)
		assert.NotContains(t, story(p.run(Policy{})), StateReset)
		assert.Equal(t, "precious\n", p.output("cmd-2"), "after %d days", days)
	}
}

// TestReusedSessionID: a session with the ID of an ended one shows neither its outputs nor its
// events.
func TestReusedSessionID(t *testing.T) {
	t.Parallel()
	store := durable.Dir(t.TempDir())
	first := newTestSession(t, &durabletest.Options{Output: store})
	second := newTestSession(t, &durabletest.Options{Output: store})
	second.Worker.Client = first.Server.Client()
	var outputs, pages []string
	for _, p := range []*testSession{first, second} {
		p.send(time.Minute, "a", "echo of "+p.Server.URL)
		p.destroyAt(2 * time.Minute)
		p.run(Policy{})
		require.NoError(t, p.GetWorkflowError())
		assert.Equal(t, "of "+p.Server.URL+"\n", p.output("cmd-1"))
		outputs = append(outputs, keyOfOutput(p.events(), "cmd-1"))
		v, err := p.QueryWorkflow(queryEvents, 0)
		require.NoError(t, err)
		var got page
		require.NoError(t, v.Get(&got))
		pages = append(pages, got.Dir)
	}
	assert.NotEqual(t, outputs[0], outputs[1])
	assert.NotEqual(t, pages[0], pages[1])
}

// TestMaxRun: MaxRun ends a command that would block the queue for ever.
func TestMaxRun(t *testing.T) {
	t.Parallel()
	p := newTestSession(t, nil)
	p.send(time.Minute, "a", "sleep 1000")
	p.send(time.Minute, "b", "echo ran")
	p.destroyAt(10 * time.Minute)
	words := story(p.run(Policy{MaxRun: time.Second}))
	assert.Contains(t, words, "cmd-2 exited 0", "%v", words)
	assert.Equal(t, "ran\n", p.output("cmd-2"))
}
