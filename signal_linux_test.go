package sandbox_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/internal/needs"
	"github.com/go-vercel/sandbox/internal/testkit"
	"github.com/go-vercel/sandbox/sandboxtest"
)

// begun waits until the command has written a number of lines.
func begun(t *testing.T, cmd *sandbox.Command, lines int) (said []string) {
	t.Helper()
	for line, err := range cmd.Lines(t.Context()) {
		require.NoError(t, err)
		if said = append(said, line.Data); len(said) == lines {
			break
		}
	}
	require.Len(t, said, lines)
	return said
}

// family is a process with children, a grandchild, and one in a session of its
// own; the environment variable tells them from others.
const family = `(sleep 600 & echo $!; sleep 600) & echo $!
sleep 600 & echo $!
setsid sleep 600 & echo $!
wait`

// TestSignalTree ends a process with its family, and nobody else: not one like
// it, and not one that is stopped.
func TestSignalTree(t *testing.T) {
	t.Parallel()
	needs.Programs(t, "bash", "setsid")
	for _, sig := range []sandbox.Signal{sandbox.SIGKILL, sandbox.SIGTERM} {
		t.Run(sig.String(), func(t *testing.T) {
			t.Parallel()
			srv, sb := testkit.Start(t, nil)
			start := func(env string) *sandbox.Command {
				cmd, err := sb.StartCommand(t.Context(), "bash", []string{"-c", family}, &sandbox.CommandOptions{Env: sandbox.Env{"FAMILY": env}})
				require.NoError(t, err)
				begun(t, cmd, 4)
				return cmd
			}
			mark := t.Name() + strconv.FormatInt(time.Now().UnixNano(), 36)
			ours := start(mark)
			start(mark + "twin") // the same command line, at the same time
			sleeper, err := sb.StartCommand(t.Context(), "sleep", []string{"600"}, &sandbox.CommandOptions{Env: sandbox.Env{"FAMILY": mark + "stopped"}})
			require.NoError(t, err)
			require.NoError(t, sleeper.Signal(t.Context(), sandbox.SIGSTOP))
			require.Len(t, testkit.ProcessesWith(t, "FAMILY="+mark), 5)

			before := testkit.Count(srv, sandboxtest.RunCommand) + testkit.Count(srv, sandboxtest.KillCommand)
			require.NoError(t, ours.SignalTree(t.Context(), sig))
			assert.Equal(t, 2, testkit.Count(srv, sandboxtest.RunCommand)+testkit.Count(srv, sandboxtest.KillCommand)-before, "requests")
			done, err := ours.Wait(t.Context())
			require.NoError(t, err)
			assert.Equal(t, 128+int(sig), done.ExitCode)
			assert.Eventually(t, func() bool { return len(testkit.ProcessesWith(t, "FAMILY="+mark)) == 0 }, testkit.Patience, 10*time.Millisecond)
			assert.Len(t, testkit.ProcessesWith(t, "FAMILY="+mark+"twin"), 5)
			assert.Len(t, testkit.ProcessesWith(t, "FAMILY="+mark+"stopped"), 1)
		})
	}
}

// Without sh the process alone is ended, and the error says so.
func TestSignalTreeAlone(t *testing.T) {
	t.Parallel()
	_, sb := testkit.Start(t, nil)
	cmd, err := sb.StartCommand(t.Context(), "sleep", []string{"600"}, nil)
	require.NoError(t, err)
	require.NoError(t, sb.WriteFiles(t.Context(), []sandbox.File{{Path: "none/x"}}, nil))
	require.NoError(t, sb.Update(t.Context(), &sandbox.UpdateOptions{Env: sandbox.Env{"PATH": sb.Cwd() + "/none"}}))
	err = cmd.SignalTree(t.Context(), sandbox.SIGTERM)
	assert.ErrorIs(t, err, sandbox.ErrChildren)
	done, err := cmd.Wait(t.Context())
	require.NoError(t, err)
	assert.Equal(t, 128+15, done.ExitCode)
	assert.Error(t, cmd.SignalTree(t.Context(), sandbox.SIGKILL))
	assert.ErrorIs(t, cmd.SignalTree(t.Context(), sandbox.SIGSTOP), sandbox.ErrInvalid)
	assert.False(t, strings.Contains(sandbox.ErrChildren.Error(), "\n"))
}
