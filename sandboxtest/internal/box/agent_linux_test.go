package box

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/internal/test/needs"
)

// ownAgents makes the test's hosts use agents that no other test has, and skips
// where there can be none.
func ownAgents(t *testing.T) {
	t.Helper()
	t.Setenv("BOX_TEST_AGENT", t.Name())
	a, err := acquireAgent()
	if err != nil {
		needs.Other(t, "%v", err)
	}
	a.release()
}

// openRootless opens a host whose boxes an agent runs, as root, too.
func openRootless(t *testing.T, log *slog.Logger) *Host {
	t.Helper()
	h, err := open(Options{Logger: log}, way{mode: Namespace, rootless: true}, t.TempDir())
	if errors.Is(err, ErrUnavailable) {
		needs.Other(t, "%v", err)
	}
	require.NoError(t, err)
	return h
}

func agentOf(h *Host) *agentProcess { return h.backend.(*remoteBackend).agent }

// TestHostsShareAnAgent: one ends with its boxes, and the other goes on.
func TestHostsShareAnAgent(t *testing.T) {
	ownAgents(t)
	one, other := openRootless(t, slog.New(slog.DiscardHandler)), openRootless(t, slog.New(slog.DiscardHandler))
	agent := agentOf(one)
	assert.Same(t, agent, agentOf(other))
	ending, staying := newBox(t, one, Config{}), newBox(t, other, Config{})
	start(t, ending, Spec{Path: "sleep", Args: []string{mark()}})
	assert.Equal(t, "written", sh(t, staying, "echo written | tee file"))
	require.NoError(t, one.Close())
	assert.Equal(t, "written", sh(t, staying, "cat file; ps -e 2>/dev/null | grep sleep; true"))
	_, err := ending.Start(t.Context(), Spec{Path: "true"})
	require.ErrorIs(t, err, ErrStopped)

	held := func() int {
		entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", agent.cmd.Process.Pid))
		require.NoError(t, err)
		return len(entries)
	}
	before := held()
	for range 10 {
		h := openRootless(t, slog.New(slog.DiscardHandler))
		sh(t, newBox(t, h, Config{}), "true")
		require.NoError(t, h.Close())
	}
	assert.Eventually(t, func() bool { return held() <= before+2 }, time.Minute, 10*time.Millisecond, "descriptors of hosts that are closed stay")

	// Nothing of a host runs on in the agent, not even what it could not end itself.
	third, seconds := openRootless(t, slog.New(slog.DiscardHandler)), mark()
	start(t, newBox(t, third, Config{}), Spec{Path: "sleep", Args: []string{seconds}})
	assertRuns(t, seconds)
	_, _, err = third.backend.(*remoteBackend).call(&request{Op: "close"})
	require.NoError(t, err)
	assertGone(t, seconds)
	_ = third.Close() // its box has gone
	require.NoError(t, other.Close())
}

// TestKilledAgent: hosts say that it was killed, and new ones have another.
func TestKilledAgent(t *testing.T) {
	ownAgents(t)
	var logged bytes.Buffer
	h := openRootless(t, slog.New(slog.NewTextHandler(&logged, nil)))
	b := newBox(t, h, Config{})
	sleeping := start(t, b, Spec{Path: "sleep", Args: []string{mark()}})
	agent := agentOf(h)
	_, err := agent.said.WriteString("panic: of the agent")
	require.NoError(t, err)
	require.NoError(t, agent.cmd.Process.Kill())
	assert.Equal(t, 137, sleeping.Wait().ExitCode)
	_, err = b.Start(t.Context(), Spec{Path: "true"})
	require.ErrorContains(t, err, "the agent has gone")

	next := openRootless(t, slog.New(slog.DiscardHandler))
	assert.NotSame(t, agent, agentOf(next))
	sh(t, newBox(t, next, Config{}), "true")
	_ = h.Close() // its boxes could not be stopped
	assert.Contains(t, logged.String(), "panic: of the agent")
	sh(t, newBox(t, next, Config{}), "true")
	require.NoError(t, next.Close())
}

// TestIdleAgent: an agent stays for the next host, and ends a moment after the last.
func TestIdleAgent(t *testing.T) {
	ownAgents(t)
	t.Setenv("BOX_TEST_AGENT", "in a bubble")
	synctest.Test(t, func(t *testing.T) {
		a, err := acquireAgent()
		require.NoError(t, err)
		a.release()
		time.Sleep(agentLinger - 1)
		again, err := acquireAgent()
		require.NoError(t, err)
		assert.Same(t, a, again)
		time.Sleep(2 * agentLinger)
		assert.True(t, a.alive(), "ended under its host")
		a.release()
		time.Sleep(agentLinger - 1)
		_, err = acquireAgent()
		require.NoError(t, err)
		a.release()
		time.Sleep(2 * time.Nanosecond)
		synctest.Wait()
		assert.True(t, a.alive(), "ended by an earlier host")
		time.Sleep(agentLinger)
		synctest.Wait()
		agents.mu.Lock()
		defer agents.mu.Unlock()
		assert.Nil(t, a.cmd)
		assert.NotContains(t, slices.Collect(maps.Values(agents.open)), a)
	})
	// One that a bubble has left is anybody's.
	var left *agentProcess
	synctest.Test(t, func(t *testing.T) {
		var err error
		left, err = acquireAgent()
		require.NoError(t, err)
		left.release()
	})
	again, err := acquireAgent()
	require.NoError(t, err)
	assert.Same(t, left, again)
	again.release()
}
