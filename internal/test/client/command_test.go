//go:build linux

package client_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"weak"

	"github.com/go-vercel/sandbox/internal/test/testkit"

	"github.com/go-vercel/sandbox"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// blockingWriter is a writer that blocks until the test has received the written data.
type blockingWriter chan string

func (g blockingWriter) Write(p []byte) (int, error) { g <- string(p); return len(p), nil }

// TestOutputWhileRunning: output arrives line by line while the command runs. The command
// writes a line only after the test has received the previous one and created a file.
func TestOutputWhileRunning(t *testing.T) {
	t.Parallel()
	sb := share(t, nil)
	lines := make(blockingWriter)
	result := make(chan error, 1)
	go func() {
		_, err := sb.RunCommand(t.Context(), "sh", []string{"-c",
			`for i in 1 2 3; do echo line $i; while [ ! -e seen-$i ]; do sleep 0.1; done; done`}, &sandbox.CommandOptions{Stdout: lines})
		close(lines)
		result <- err
	}()
	n := 0
	for line := range lines {
		n++
		assert.Equal(t, fmt.Sprintf("line %d\n", n), line)
		_, err := sb.RunCommand(t.Context(), "touch", []string{fmt.Sprintf("seen-%d", n)}, nil)
		require.NoError(t, err)
	}
	require.NoError(t, <-result)
	assert.Equal(t, 3, n)
}

// TestProcessesEnd: a process is gone after a signal, after its timeout and after Stop.
// Its child is gone only after the timeout and Stop, because Kill and Signal signal only
// the process itself, as on the platform.
func TestProcessesEnd(t *testing.T) {
	t.Parallel()
	srv, sb := start(t, nil)
	args := []string{"-c", "sleep 1000 & echo started; wait"}
	for name, end := range map[string]func(*sandbox.Command) error{
		"kill": func(c *sandbox.Command) error { return c.Kill(t.Context()) },
		"term": func(c *sandbox.Command) error { return c.Signal(t.Context(), sandbox.SIGTERM) },
		"timeout": func(*sandbox.Command) error {
			srv.Advance(time.Hour) // longer than the command's timeout, shorter than the session's
			return nil
		},
		"stop": func(*sandbox.Command) error { _, err := sb.Stop(t.Context(), nil); return err },
	} {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, sb.ExtendTimeout(t.Context(), 4*time.Hour))
			marker := fmt.Sprintf("marker-%s-%d", name, time.Now().UnixNano())
			cmd, err := sb.StartCommand(t.Context(), "sh", args, &sandbox.StartOptions{
				Timeout: 30 * time.Minute, Env: map[string]string{"MARKER": marker},
			})
			require.NoError(t, err)
			for line, err := range cmd.Logs(t.Context()) {
				require.NoError(t, err)
				require.Equal(t, "started\n", line.Data)
				break
			}
			var pids []int
			require.Eventually(t, func() bool { // a process shows no environment while it starts its program
				pids = testkit.ProcessesWith(t, "MARKER="+marker)
				return len(pids) >= 2
			}, testkit.Patience, 10*time.Millisecond, "the shell and its child run")
			require.NoError(t, end(cmd))
			left := 0
			if name == "kill" || name == "term" {
				left = 1 // the child survives a signal to its parent
			}
			require.Eventually(t, func() bool {
				return len(slices.DeleteFunc(slices.Clone(pids), func(pid int) bool { return !alive(pid) })) == left
			}, testkit.Patience, 10*time.Millisecond, "of the processes %v, exactly %d are alive", pids, left)
		})
	}
}

func alive(pid int) bool {
	err := syscall.Kill(pid, 0)
	return err == nil || !errors.Is(err, syscall.ESRCH)
}

// TestExitCodes: exit codes and signals are reported as in a shell.
func TestExitCodes(t *testing.T) {
	t.Parallel()
	srv, sb := start(t, nil)
	for script, want := range map[string]int{"exit 0": 0, "exit 7": 7, "kill -9 $$": 137, "kill -15 $$": 143} {
		done, err := sb.RunCommand(t.Context(), "bash", []string{"-c", script}, nil)
		require.NoError(t, err)
		assert.Equal(t, want, done.ExitCode, script)
	}
	cmd, err := sb.StartCommand(t.Context(), "sleep", []string{"1000"}, &sandbox.StartOptions{Timeout: time.Minute})
	require.NoError(t, err)
	srv.Advance(2 * time.Minute)
	done, err := cmd.Wait(t.Context())
	require.NoError(t, err)
	assert.Equal(t, 137, done.ExitCode)
}

// TestOutputOrder: the output of an ended command can be read separately for each stream,
// or combined in the order in which it arrived. The command writes each line only after
// the test has received the previous one, so that this order is known.
func TestOutputOrder(t *testing.T) {
	t.Parallel()
	sb := share(t, nil)
	script := []string{"-c", `go() { until [ -e "$0-$1" ]; do sleep 0.1; done; }
		for i in 1 2 3; do echo out $i; go o$i; echo err $i >&2; go e$i; done`}
	for _, name := range []string{"waited", "detached"} {
		id := "order-" + name
		started := make(chan *sandbox.Command, 1)
		go func() {
			defer close(started)
			args := append(slices.Clone(script), name)
			if name == "detached" {
				if cmd, err := sb.StartCommand(t.Context(), "sh", args, &sandbox.StartOptions{ID: id}); assert.NoError(t, err) {
					started <- cmd
				}
				return
			}
			if done, err := sb.RunCommand(t.Context(), "sh", args, &sandbox.CommandOptions{ID: id}); assert.NoError(t, err) {
				started <- done.Command
			}
		}()
		var other *sandbox.Command
		require.Eventually(t, func() (found bool) {
			var err error
			other, err = sb.GetCommand(t.Context(), id)
			return err == nil
		}, testkit.Patience, 10*time.Millisecond)
		for line, err := range other.Lines(t.Context()) {
			require.NoError(t, err)
			require.NoError(t, sb.FS().WriteFile(t.Context(), name+"-"+line.Data[:1]+line.Data[4:], nil, 0o644))
		}
		c := <-started
		require.NotNil(t, c)
		out, err := c.Stdout(t.Context())
		require.NoError(t, err)
		assert.Equal(t, "out 1\nout 2\nout 3\n", out, name)
		errs, err := c.Stderr(t.Context())
		require.NoError(t, err)
		assert.Equal(t, "err 1\nerr 2\nerr 3\n", errs, name)
		both, err := c.CombinedOutput(t.Context())
		require.NoError(t, err)
		assert.Equal(t, "out 1\nerr 1\nout 2\nerr 2\nout 3\nerr 3\n", both, name)
	}
}

// TestKillOnCancel: when its context ends, a call that waits for a command returns. With
// KillOnCancel, the process ends, too.
func TestKillOnCancel(t *testing.T) {
	t.Parallel()
	sb := share(t, nil)
	for _, kill := range []bool{false, true} {
		ctx, cancel := context.WithCancel(t.Context())
		lines := make(blockingWriter)
		result := make(chan error, 1)
		marker := "kill-" + strconv.FormatBool(kill) + fmt.Sprint(time.Now().UnixNano())
		go func() {
			_, err := sb.RunCommand(ctx, "sh", []string{"-c", "echo started; exec sleep 1000"}, &sandbox.CommandOptions{
				Stdout: lines, KillOnCancel: kill, Env: map[string]string{"MARKER": marker},
			})
			result <- err
		}()
		<-lines
		var pids []int
		require.Eventually(t, func() bool {
			pids = testkit.ProcessesWith(t, "MARKER="+marker)
			return len(pids) == 1
		}, testkit.Patience, 10*time.Millisecond)
		cancel()
		require.ErrorIs(t, <-result, context.Canceled)
		if kill {
			require.Eventually(t, func() bool { return !alive(pids[0]) }, testkit.Patience, 10*time.Millisecond)
		} else {
			assert.True(t, alive(pids[0]), "the command is still running")
		}
	}
}

// writerWithError is a writer that fails with err.
type writerWithError struct{ err error }

func (f writerWithError) Write([]byte) (int, error) { return 0, f.err }

// TestWriterFails: the error of a writer is returned to the caller.
func TestWriterFails(t *testing.T) {
	t.Parallel()
	sb := share(t, nil)
	full := errors.New("disk full")
	_, err := sb.RunCommand(t.Context(), "echo", []string{"x"}, &sandbox.CommandOptions{Stdout: writerWithError{full}})
	require.ErrorIs(t, err, full)
	cmd, err := sb.StartCommand(t.Context(), "echo", []string{"x"}, &sandbox.StartOptions{Stdout: writerWithError{full}})
	require.NoError(t, err)
	done, err := cmd.Wait(t.Context())
	require.ErrorIs(t, err, full)
	assert.Equal(t, 0, done.ExitCode)
}

// The requests that a started command costs until its end or its output is known. If the
// options have writers, the response to the start contains the output and the end of the
// command. A log does not show that the command has ended, so the client looks up the
// command and reads the log again.
func TestStartCommandCosts(t *testing.T) {
	t.Parallel()
	srv, sb := start(t, nil)
	ctx := t.Context()
	logs := func(cmd *sandbox.Command) error {
		for _, err := range cmd.Logs(ctx) {
			if err != nil {
				return err
			}
		}
		return nil
	}
	wait := func(cmd *sandbox.Command) error {
		done, err := cmd.Wait(ctx)
		if err == nil && done.ExitCode != 3 {
			err = fmt.Errorf("exit code %d", done.ExitCode)
		}
		return err
	}
	var stdout, stderr, both bytes.Buffer
	for name, c := range map[string]struct {
		cost int
		opts *sandbox.StartOptions
		run  func(cmd *sandbox.Command) error
	}{
		"writers":            {1, &sandbox.StartOptions{Stdout: &stdout, Stderr: &stderr}, wait},
		"writers, output":    {1, &sandbox.StartOptions{Stdout: &both, Stderr: &both, KillOnCancel: true}, func(cmd *sandbox.Command) error { return errors.Join(cmd.WaitOutput(ctx), wait(cmd)) }},
		"writers, two waits": {1, &sandbox.StartOptions{Stdout: io.Discard}, func(cmd *sandbox.Command) error { return errors.Join(wait(cmd), wait(cmd)) }},
		"wait":               {2, nil, wait},
		"two waits":          {2, nil, func(cmd *sandbox.Command) error { return errors.Join(wait(cmd), wait(cmd)) }},
		"logs":               {4, nil, logs},
		"logs and wait":      {4, nil, func(cmd *sandbox.Command) error { return errors.Join(logs(cmd), wait(cmd)) }},
		"wait and logs":      {4, nil, func(cmd *sandbox.Command) error { return errors.Join(wait(cmd), logs(cmd)) }},
	} {
		before := len(srv.Requests())
		cmd, err := sb.StartCommand(ctx, "sh", []string{"-c", "echo one; echo two >&2; exit 3"}, c.opts)
		require.NoError(t, err, name)
		require.NoError(t, c.run(cmd), name)
		assert.Equal(t, c.cost, len(srv.Requests())-before, name)
		code, exited := cmd.ExitStatus()
		assert.True(t, exited, name)
		assert.Equal(t, 3, code, name)
	}
	assert.Equal(t, "one\n", stdout.String())
	assert.Equal(t, "two\n", stderr.String())
	assert.Len(t, both.String(), len("one\ntwo\n"))
}

// TestDeleted: after Delete the handle can't be used, and the sandbox is gone.
func TestDeleted(t *testing.T) {
	t.Parallel()
	sb := share(t, nil)
	require.NoError(t, sb.Delete(t.Context(), nil))
	_, err := sb.RunCommand(t.Context(), "true", nil, nil)
	require.ErrorIs(t, err, sandbox.ErrDeleted)
	require.ErrorIs(t, sb.Delete(t.Context(), nil), sandbox.ErrDeleted)
	require.ErrorIs(t, sb.Refresh(t.Context()), sandbox.ErrDeleted)
	require.NoError(t, sb.Close())
}

// TestGetOrCreateRace: of several concurrent callers one creates the sandbox,
// and all get the same one.
func TestGetOrCreateRace(t *testing.T) {
	t.Parallel()
	srv, _ := start(t, nil)
	client := testkit.Client(t, srv, sandbox.ClientOptions{})
	var created atomic.Int64
	opts := &sandbox.CreateOptions{OnCreate: func(context.Context, *sandbox.Sandbox) error { created.Add(1); return nil }}
	results := make(chan string, 16)
	for range cap(results) {
		go func() {
			sb, err := client.GetOrCreate(t.Context(), "shared", opts)
			if err != nil {
				results <- err.Error()
				return
			}
			results <- sb.CurrentSession().ID()
		}()
	}
	ids := map[string]bool{}
	for range cap(results) {
		ids[<-results] = true
	}
	assert.Len(t, ids, 1, "%v", ids)
	assert.EqualValues(t, 1, created.Load())
	for id := range ids {
		assert.False(t, strings.Contains(id, " "), id)
	}
}

// TestEndedCommandIsReleased: after the end of a command with KillOnCancel, its context
// does not keep the command in memory.
func TestEndedCommandIsReleased(t *testing.T) {
	t.Parallel()
	sb := share(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	run := func() weak.Pointer[sandbox.Command] {
		cmd, err := sb.StartCommand(ctx, "true", nil, &sandbox.StartOptions{KillOnCancel: true})
		require.NoError(t, err)
		_, err = cmd.Wait(ctx)
		require.NoError(t, err)
		return weak.Make(cmd)
	}
	kept := run()
	for i := 0; i < 20 && kept.Value() != nil; i++ {
		runtime.GC()
	}
	assert.Nil(t, kept.Value(), "the context holds a command that has ended")
}

// TestBracesInArguments: a command whose arguments are source code can be started, found
// and listed.
func TestBracesInArguments(t *testing.T) {
	t.Parallel()
	sb := share(t, nil)
	source := strings.Repeat(`{"{`, 20_000)
	args := []string{"-c", `echo $#`, source, source, source}
	done, err := sb.RunCommand(t.Context(), "sh", args, nil)
	require.NoError(t, err)
	stdout, err := done.Stdout(t.Context())
	require.NoError(t, err)
	assert.Equal(t, "2\n", stdout)
	cmd, err := sb.StartCommand(t.Context(), "sh", args, nil)
	require.NoError(t, err)
	_, err = cmd.Wait(t.Context())
	require.NoError(t, err)
	args[1] = "exec sleep 1000"
	ensured, err := sb.EnsureCommand(t.Context(), "braces", "sh", args, nil)
	require.NoError(t, err)
	again, err := sb.EnsureCommand(t.Context(), "braces", "sh", args, nil)
	require.NoError(t, err)
	assert.Equal(t, ensured.ID(), again.ID())
	all, err := sb.CurrentSession().ListCommands(t.Context())
	require.NoError(t, err)
	found := 0
	for _, c := range all {
		if slices.Equal(args, c.Args()[max(0, len(c.Args())-len(args)):]) {
			found++
		}
	}
	assert.Equal(t, 1, found)
}
