package agent

import (
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-vercel/sandbox/internal/test/needs"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestIdleAgent: an agent stays for the next host, and ends some time after the last.
func TestIdleAgent(t *testing.T) {
	t.Setenv("BOX_TEST_AGENT", t.Name()) // an agent that no other test has
	a, err := acquireAgent()
	if err != nil {
		needs.Other(t, "%v", err)
	}
	a.release()
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
		assert.True(t, a.alive(), "ended although a host uses it")
		a.release()
		time.Sleep(agentLinger - 1)
		_, err = acquireAgent()
		require.NoError(t, err)
		a.release()
		time.Sleep(2 * time.Nanosecond)
		synctest.Wait()
		assert.True(t, a.alive(), "ended too early, by the time of an earlier host")
		time.Sleep(agentLinger)
		synctest.Wait()
		agents.mu.Lock()
		defer agents.mu.Unlock()
		assert.Nil(t, a.cmd)
		assert.NotContains(t, slices.Collect(maps.Values(agents.open)), a)
	})
	// Any host can use an agent that was started in a synctest bubble.
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
