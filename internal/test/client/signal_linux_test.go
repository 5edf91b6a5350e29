package client_test

import (
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/internal/engine"
	"github.com/go-vercel/sandbox/internal/test/needs"
	"github.com/go-vercel/sandbox/internal/test/testkit"
	"github.com/go-vercel/sandbox/sandboxtest"
)

// firstLines waits for a number of lines of the command's output, and returns them.
func firstLines(t *testing.T, cmd *sandbox.Command, lines int) (said []string) {
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

// family is a script that starts two children, a grandchild, and a descendant in a session
// of its own, and waits. The variable FAMILY identifies the five processes.
const family = `(sleep 600 & echo $!; sleep 600) & echo $!
sleep 600 & echo $!
setsid sleep 600 & echo $!
wait`

// scriptsPerTree returns how many scripts the client runs to signal a process tree. If the
// emulator runs as an ordinary user, it needs a second one as root, because only root can
// read the environment of other processes.
func scriptsPerTree(srv *sandboxtest.Server) int {
	if srv.Mode() == sandboxtest.Namespace && !srv.Enforces().Users {
		return 2
	}
	return 1
}

// TestSignalTree: SignalTree ends a process and its descendants. It does not affect a
// process with the same command line, or a stopped one.
func TestSignalTree(t *testing.T) {
	t.Parallel()
	needs.Programs(t, "bash", "setsid")
	for _, sig := range []sandbox.Signal{sandbox.SIGKILL, sandbox.SIGTERM} {
		t.Run(sig.String(), func(t *testing.T) {
			t.Parallel()
			if sig == sandbox.SIGKILL {
				needs.Long(t, "TestDescendantsEnd kills process trees")
			}
			srv, sb := start(t, nil)
			start := func(env string) *sandbox.Command {
				cmd, err := sb.StartCommand(t.Context(), "bash", []string{"-c", family}, &sandbox.StartOptions{Env: sandbox.Env{"FAMILY": env}})
				require.NoError(t, err)
				firstLines(t, cmd, 4)
				return cmd
			}
			mark := t.Name() + strconv.FormatInt(time.Now().UnixNano(), 36)
			ours := start(mark)
			start(mark + "twin") // the same command line, at the same time
			sleeper, err := sb.StartCommand(t.Context(), "sleep", []string{"600"}, &sandbox.StartOptions{Env: sandbox.Env{"FAMILY": mark + "stopped"}})
			require.NoError(t, err)
			require.NoError(t, sleeper.Signal(t.Context(), sandbox.SIGSTOP))
			require.Len(t, testkit.ProcessesWith(t, "FAMILY="+mark), 5)

			before := testkit.Count(srv, sandboxtest.RunCommand) + testkit.Count(srv, sandboxtest.KillCommand)
			require.NoError(t, ours.SignalTree(t.Context(), sig))
			assert.Equal(t, before+scriptsPerTree(srv), testkit.Count(srv, sandboxtest.RunCommand)+testkit.Count(srv, sandboxtest.KillCommand), "requests")
			done, err := ours.Wait(t.Context())
			require.NoError(t, err)
			assert.Equal(t, 128+int(sig), done.ExitCode)
			assert.Eventually(t, func() bool { return len(testkit.ProcessesWith(t, "FAMILY="+mark)) == 0 }, testkit.Patience, 10*time.Millisecond)
			assert.Len(t, testkit.ProcessesWith(t, "FAMILY="+mark+"twin"), 5)
			assert.Len(t, testkit.ProcessesWith(t, "FAMILY="+mark+"stopped"), 1)
		})
	}
}

// TestDescendantsEnd: every way to end a command also ends its descendants. It costs no
// request except for the script that kills the tree.
func TestDescendantsEnd(t *testing.T) {
	t.Parallel()
	needs.Programs(t, "bash", "setsid")
	// TestLostScript and TestCmdKill cover the other ways.
	defaultWays := []string{"Cmd, WaitDelay"}
	type run struct {
		*testing.T
		sb         *sandbox.Sandbox
		args       []string
		env        sandbox.Env
		awaitStart func() // waits until the five processes of the family run
		ctx        context.Context
		cancel     func()
		checkErr   func(error) // checks that the error does not report surviving processes
	}
	options := func(r *run) *sandbox.CommandOptions { return &sandbox.CommandOptions{KillOnCancel: true, Env: r.env} }
	// cmd runs a Cmd, and calls end once all processes have started.
	cmd := func(r *run, set func(*sandbox.Cmd), end func(*sandbox.Cmd)) {
		c := r.sb.CommandContext(r.ctx, "bash", r.args...)
		c.Env = []string{"FAMILY=" + r.env["FAMILY"]}
		set(c)
		require.NoError(r, c.Start())
		r.awaitStart()
		end(c)
		err := c.Wait()
		r.checkErr(err)
		exit, ok := errors.AsType[*sandbox.ExitError](err)
		require.True(r, ok, "%v", err)
		assert.Equal(r, 137, exit.ExitCode())
	}
	srv := newServer(t)
	client := testkit.Client(t, srv, sandbox.ClientOptions{})
	for name, end := range map[string]func(r *run){
		"RunCommand, KillOnCancel": func(r *run) {
			go func() { r.awaitStart(); r.cancel() }()
			_, err := r.sb.RunCommand(r.ctx, "bash", r.args, options(r))
			assert.ErrorIs(r, err, context.Canceled)
			r.checkErr(err)
		},
		"RunCommand, KillOnCancel, writer fails": func(r *run) {
			o := options(r)
			o.Stdout = writerWithError{errors.New("disk full")}
			_, err := r.sb.RunCommand(r.ctx, "bash", r.args, o)
			assert.ErrorContains(r, err, "disk full")
			r.checkErr(err)
		},
		"StartCommand, KillOnCancel": func(r *run) {
			_, err := r.sb.StartCommand(r.ctx, "bash", r.args, &sandbox.StartOptions{KillOnCancel: true, Env: r.env})
			require.NoError(r, err)
			r.awaitStart()
			r.cancel()
		},
		"StartCommand, KillOnCancel, writer": func(r *run) {
			c, err := r.sb.StartCommand(r.ctx, "bash", r.args, &sandbox.StartOptions{KillOnCancel: true, Env: r.env, Stdout: io.Discard})
			require.NoError(r, err)
			r.awaitStart()
			r.cancel()
			assert.Eventually(r, func() bool { return c.WaitOutput(r.Context()) != nil }, testkit.Patience, time.Millisecond)
		},
		"Command.SignalTree": func(r *run) {
			c, err := r.sb.StartCommand(r.ctx, "bash", r.args, &sandbox.StartOptions{KillOnCancel: true, Env: r.env})
			require.NoError(r, err)
			r.awaitStart()
			require.NoError(r, c.SignalTree(r.Context(), sandbox.SIGKILL))
		},
		"Cmd, context": func(r *run) { cmd(r, func(*sandbox.Cmd) {}, func(*sandbox.Cmd) { r.cancel() }) },
		"Cmd, context, output": func(r *run) {
			cmd(r, func(c *sandbox.Cmd) { c.Stdout, c.Stderr = io.Discard, io.Discard }, func(*sandbox.Cmd) { r.cancel() })
		},
		"Cmd, file as Stdin": func(r *run) {
			cmd(r, func(c *sandbox.Cmd) { c.Stdin = strings.NewReader("text") }, func(*sandbox.Cmd) { r.cancel() })
		},
		"Cmd, WaitDelay": func(r *run) {
			cmd(r, func(c *sandbox.Cmd) {
				c.Cancel = func() error { return nil }
				c.WaitDelay = time.Millisecond
			}, func(*sandbox.Cmd) { r.cancel() })
		},
		"Process.SignalTree": func(r *run) {
			cmd(r, func(*sandbox.Cmd) {}, func(c *sandbox.Cmd) { require.NoError(r, c.Process.SignalTree(os.Kill)) })
		},
	} {
		// Don't run these in parallel: a kill has five seconds, which ten sandboxes at
		// once could exceed on a busy machine.
		t.Run(name, func(t *testing.T) {
			if !slices.Contains(defaultWays, name) {
				needs.Long(t, "other tests end commands like this")
			}
			sb, err := client.Create(t.Context(), testkit.Lasting(nil))
			require.NoError(t, err)
			count := func(op sandboxtest.Operation) (n int) {
				for _, r := range srv.Requests() {
					if r.Operation == op && strings.Contains(r.Path, sb.CurrentSession().ID()) {
						n++
					}
				}
				return n
			}
			mark := t.Name() + strconv.FormatInt(time.Now().UnixNano(), 36)
			r := &run{T: t, sb: sb, args: []string{"-c", family}, env: sandbox.Env{"FAMILY": mark}}
			r.ctx, r.cancel = context.WithCancel(t.Context())
			defer r.cancel()
			r.checkErr = func(err error) {
				if tooBusy(err) {
					needs.Other(t, "needs a machine that is less busy: the kill got no response in time")
				}
				assert.NotErrorIs(t, err, sandbox.ErrChildren)
				assert.NotErrorIs(t, err, sandbox.ErrOutcomeUnknown)
			}
			r.awaitStart = func() {
				assert.Eventually(t, func() bool { return len(testkit.ProcessesWith(t, "FAMILY="+mark)) == 5 }, testkit.Patience, 30*time.Millisecond)
			}
			begin := time.Now()
			end(r)
			assert.Eventually(t, func() bool { return len(testkit.ProcessesWith(t, "FAMILY="+mark)) == 0 }, testkit.Patience, 30*time.Millisecond)
			if time.Since(begin) > engine.KillTimeout-2*engine.TreeGrace {
				return // the script was too slow, so the client killed the process alone first
			}
			assert.Zero(t, count(sandboxtest.KillCommand))
			want := 1 + scriptsPerTree(srv)
			if name == "Cmd, file as Stdin" {
				want++ // looks up the program
			}
			assert.Equal(t, want, count(sandboxtest.RunCommand), "the start and the script")
		})
	}
}

// TestContextKillsIdenticalCommands: the end of one context kills several identical commands.
func TestContextKillsIdenticalCommands(t *testing.T) {
	t.Parallel()
	needs.Long(t, "four trees are killed at once")
	needs.Programs(t, "bash", "setsid")
	sb := share(t, nil)
	mark := t.Name() + strconv.FormatInt(time.Now().UnixNano(), 36)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	const twins = 4
	ended := make(chan error, twins)
	for range twins {
		go func() {
			_, err := sb.RunCommand(ctx, "bash", []string{"-c", family}, &sandbox.CommandOptions{KillOnCancel: true, Env: sandbox.Env{"FAMILY": mark}})
			ended <- err
		}()
	}
	alive := func() int { return len(testkit.ProcessesWith(t, "FAMILY="+mark)) }
	require.Eventually(t, func() bool { return alive() == 5*twins }, testkit.Patience, 10*time.Millisecond)
	cancel()
	left := 0
	for range twins {
		err := <-ended
		assert.ErrorIs(t, err, context.Canceled)
		if tooBusy(err) {
			left += 5
			continue
		}
		assert.NotErrorIs(t, err, sandbox.ErrChildren)
	}
	assert.Eventually(t, func() bool { return alive() <= left }, testkit.Patience, 10*time.Millisecond)
}

// TestSignalTreeOfBlockedProcess: SignalTree ends a process that waits in the kernel and therefore
// ignores SIGSTOP. Here it waits for a child that shares its memory and that opens a pipe
// without a writer.
func TestSignalTreeOfBlockedProcess(t *testing.T) {
	t.Parallel()
	needs.Long(t, "the script searches the processes twenty times")
	needs.Programs(t, "python3")
	sb := share(t, nil)
	mark := t.Name() + strconv.FormatInt(time.Now().UnixNano(), 36)
	cmd, err := sb.StartCommand(t.Context(), "python3", []string{"-c", `
import os
os.mkfifo("pipe")
print("ready", flush=True)
os.posix_spawn("/bin/true", ["true"], os.environ, file_actions=[(os.POSIX_SPAWN_OPEN, 0, "pipe", os.O_RDONLY, 0)])
`}, &sandbox.StartOptions{Env: sandbox.Env{"FAMILY": mark}})
	require.NoError(t, err)
	alive := func() int { return len(testkit.ProcessesWith(t, "FAMILY="+mark)) }
	firstLines(t, cmd, 1) // python3 may be a script that starts other programs first
	require.Eventually(t, func() bool { return alive() == 2 }, testkit.Patience, 10*time.Millisecond)
	require.NoError(t, cmd.SignalTree(t.Context(), sandbox.SIGKILL))
	assert.Eventually(t, func() bool { return alive() == 0 }, testkit.Patience, 10*time.Millisecond)
}

// If the sandbox has no sh, only the process itself ends, and the error says so.
func TestSignalTreeWithoutShell(t *testing.T) {
	t.Parallel()
	sb := share(t, nil)
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
