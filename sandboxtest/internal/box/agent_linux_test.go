package box

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/go-vercel/sandbox/internal/test/needs"
	"github.com/go-vercel/sandbox/sandboxtest/internal/box/backend"
)

// ownAgent is a variable that gives the hosts of a test their own agents.
const ownAgent = "BOX_TEST_AGENT"

// agentsOf lists the running agents of the test.
func agentsOf(t *testing.T) (pids []int) {
	t.Helper()
	names, err := filepath.Glob("/proc/[0-9]*/environ")
	require.NoError(t, err)
	for _, name := range names {
		env, err := os.ReadFile(name)
		args, argsErr := os.ReadFile(filepath.Join(filepath.Dir(name), "cmdline"))
		if err != nil || argsErr != nil || !bytes.HasPrefix(args, []byte("vercel-sandbox-agent\x00")) ||
			!bytes.Contains(env, []byte(ownAgent+"="+t.Name()+"\x00")) {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(name)))
		require.NoError(t, err)
		pids = append(pids, pid)
	}
	return pids
}

// openRootless opens a host that runs its sandboxes in an agent, even if this process is
// root.
func openRootless(t *testing.T, log *slog.Logger) *Host {
	t.Helper()
	h, err := open(Options{Logger: log}, way{mode: Namespace, rootless: true}, t.TempDir())
	if errors.Is(err, ErrUnavailable) {
		needs.Other(t, "%v", err)
	}
	require.NoError(t, err)
	return h
}

// TestHostsShareAnAgent: one host ends with its sandboxes, and the other continues.
func TestHostsShareAnAgent(t *testing.T) {
	t.Setenv(ownAgent, t.Name())
	one, other := openRootless(t, slog.New(slog.DiscardHandler)), openRootless(t, slog.New(slog.DiscardHandler))
	agents := agentsOf(t)
	require.Len(t, agents, 1)
	ending, staying := newBox(t, one, backend.Config{}), newBox(t, other, backend.Config{})
	start(t, ending, backend.Spec{Path: "sleep", Args: []string{mark()}})
	assert.Equal(t, "written", sh(t, staying, "echo written | tee file"))
	require.NoError(t, one.Close())
	assert.Equal(t, "written", sh(t, staying, "cat file; ps -e 2>/dev/null | grep sleep; true"))
	_, err := ending.Start(t.Context(), backend.Spec{Path: "true"})
	require.ErrorIs(t, err, backend.ErrStopped)

	held := func() int {
		entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", agents[0]))
		require.NoError(t, err)
		return len(entries)
	}
	before := held()
	for range 4 {
		h := openRootless(t, slog.New(slog.DiscardHandler))
		sh(t, newBox(t, h, backend.Config{}), "true")
		require.NoError(t, h.Close())
	}
	assert.Eventually(t, func() bool { return held() <= before+2 }, time.Minute, 10*time.Millisecond, "descriptors of closed hosts were not released")

	// A closed host leaves nothing in the agent, not even a process that it could not end
	// itself.
	third, seconds := openRootless(t, slog.New(slog.DiscardHandler)), mark()
	start(t, newBox(t, third, backend.Config{}), backend.Spec{Path: "sleep", Args: []string{seconds}})
	assertRuns(t, seconds)
	require.NoError(t, third.backend.Close())
	assertGone(t, seconds)
	_ = third.Close() // its sandbox has gone
	require.NoError(t, other.Close())
}

// TestKilledAgent: hosts report that their agent was killed, and new hosts get another
// one.
func TestKilledAgent(t *testing.T) {
	t.Setenv(ownAgent, t.Name())
	var logged bytes.Buffer
	h := openRootless(t, slog.New(slog.NewTextHandler(&logged, nil)))
	b := newBox(t, h, backend.Config{})
	sleeping := start(t, b, backend.Spec{Path: "sleep", Args: []string{mark()}})
	agents := agentsOf(t)
	require.Len(t, agents, 1)
	said, err := os.OpenFile(fmt.Sprintf("/proc/%d/fd/2", agents[0]), os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = said.WriteString("panic: of the agent")
	require.NoError(t, errors.Join(err, said.Close()))
	require.NoError(t, unix.Kill(agents[0], unix.SIGKILL))
	assert.Equal(t, 137, sleeping.Wait())
	_, err = b.Start(t.Context(), backend.Spec{Path: "true"})
	require.ErrorContains(t, err, "the agent has gone")

	next := openRootless(t, slog.New(slog.DiscardHandler))
	assert.NotContains(t, agentsOf(t), agents[0])
	sh(t, newBox(t, next, backend.Config{}), "true")
	_ = h.Close() // its sandboxes could not be stopped
	assert.Contains(t, logged.String(), "panic: of the agent")
	sh(t, newBox(t, next, backend.Config{}), "true")
	require.NoError(t, next.Close())
}
