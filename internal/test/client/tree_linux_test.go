package client_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/internal/test/needs"
	"github.com/go-vercel/sandbox/internal/test/testkit"
	"github.com/go-vercel/sandbox/sandboxtest"
)

// processesWithArgument returns the states of this machine's processes whose command line
// contains a text. The keys are their directories in /proc.
func processesWithArgument(t *testing.T, text string) map[string]string {
	t.Helper()
	dirs, err := filepath.Glob("/proc/[0-9]*")
	require.NoError(t, err)
	states := make(map[string]string)
	for _, dir := range dirs {
		if line, err := os.ReadFile(dir + "/cmdline"); err != nil || !bytes.Contains(line, []byte(text)) {
			continue
		}
		if stat, err := os.ReadFile(dir + "/stat"); err == nil {
			if state := string(stat[bytes.LastIndexByte(stat, ')')+2]); state != "Z" {
				states[dir] = state
			}
		}
	}
	return states
}

// killAll kills the processes whose command line contains a text.
func killAll(t *testing.T, text string) {
	t.Helper()
	for dir := range processesWithArgument(t, text) {
		pid, err := strconv.Atoi(filepath.Base(dir))
		require.NoError(t, err)
		_ = syscall.Kill(pid, syscall.SIGKILL) // the process may have ended
	}
}

// uniqueDuration returns an argument for sleep by which a test finds its processes.
func uniqueDuration() string { return fmt.Sprintf("600.%018d", rand.Int64N(1e18)) }

// tooBusy reports whether a kill failed because this machine did not respond in time. Then
// processes may still be running.
func tooBusy(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) && (errors.Is(err, sandbox.ErrChildren) || errors.Is(err, sandbox.ErrOutcomeUnknown))
}

// spawning is a script that starts children and grandchildren, and then prints a line.
const spawning = `sleep "$1" & (sleep "$1" & sleep "$1") & echo begun; wait`

// overwriting is a program that overwrites its environment in memory before it starts
// children, like programs that change their title. Other processes can't read it then.
const overwriting = `
import ctypes, subprocess, sys
f = open("/proc/self/stat").read().rsplit(")", 1)[1].split()
ctypes.memset(int(f[47]), 0, int(f[48]) - int(f[47]))
children = [subprocess.Popen(["sleep", sys.argv[1]], env={}) for _ in range(2)]
print("begun", flush=True)
children[0].wait()
`

// runner is a Sandbox or a User, which both can start commands.
type runner interface {
	StartCommand(context.Context, string, []string, *sandbox.StartOptions) (*sandbox.Command, error)
	RunCommand(context.Context, string, []string, *sandbox.CommandOptions) (*sandbox.CommandResult, error)
	CommandContext(context.Context, string, ...string) *sandbox.Cmd
}

// startWriter is a writer that closes begun at the first output.
type startWriter struct {
	begun chan struct{}
	once  sync.Once
}

func (w *startWriter) Write(p []byte) (int, error) {
	w.once.Do(func() { close(w.begun) })
	return len(p), nil
}

// TestTrees ends commands of several kinds, in several ways, in sandboxes with and without
// sudo. A command's descendants end with it, except where the client can't find them:
// then only the command's process ends, and the error says so. No other process ends.
func TestTrees(t *testing.T) {
	t.Parallel()
	needs.Long(t, "each kill searches all processes of the machine, several times")
	kinds := map[string]struct {
		command  []string
		sudo     bool
		itself   bool // the command's own program is sudo
		user     bool
		alone    bool // only the process ends, because its environment does not identify it
		programs []string
	}{
		"shell":                 {command: []string{"sh", "-c", spawning, "sh"}},
		"#!":                    {command: []string{"./tool"}},
		"sudo":                  {command: []string{"sh", "-c", spawning, "sh"}, sudo: true},
		"sudo itself":           {command: []string{"sudo", "sh", "-c", spawning, "sh"}, itself: true},
		"sudo -u":               {command: []string{"sudo", "-n", "-u", "root", "--", "sh", "-c", spawning, "sh"}, itself: true},
		"user":                  {command: []string{"sh", "-c", spawning, "sh"}, user: true},
		"other environ for all": {command: []string{"sh", "-c", "env -i sh -c '" + spawning + "' sh \"$1\"; :", "sh"}},
		"env -i":                {command: []string{"env", "-i", "sh", "-c", spawning, "sh"}, alone: true},
		"env -i, with a child":  {command: []string{"sh", "-c", `sleep "$1" & exec env -i sh -c 'sleep "$1" & echo begun; wait' sh "$1"`, "sh"}, alone: true},
		"overwritten":           {command: []string{"python3", "-c", overwriting}, alone: true, programs: []string{"python3"}},
	}
	const killed = 137
	start := func(t *testing.T, on runner, args []string, sudo bool) *sandbox.Command {
		c, err := on.StartCommand(t.Context(), args[0], args[1:], &sandbox.StartOptions{Sudo: sudo})
		require.NoError(t, err)
		firstLines(t, c, 1)
		return c
	}
	signalTree := func(t *testing.T, c *sandbox.Command) (int, error) {
		treeErr := c.SignalTree(t.Context(), sandbox.SIGTERM)
		done, err := c.Wait(t.Context())
		require.NoError(t, err)
		assert.Equal(t, 143, done.ExitCode)
		return killed, treeErr
	}
	ways := map[string]func(t *testing.T, on runner, other *sandbox.Sandbox, args []string, sudo bool) (int, error){
		"Kill": func(t *testing.T, on runner, other *sandbox.Sandbox, args []string, sudo bool) (int, error) {
			return killed, start(t, on, args, sudo).Kill(t.Context())
		},
		"SignalTree": func(t *testing.T, on runner, other *sandbox.Sandbox, args []string, sudo bool) (int, error) {
			return signalTree(t, start(t, on, args, sudo))
		},
		"SignalTree of another client": func(t *testing.T, on runner, other *sandbox.Sandbox, args []string, sudo bool) (int, error) {
			same, err := other.GetCommand(t.Context(), start(t, on, args, sudo).ID())
			require.NoError(t, err)
			return signalTree(t, same)
		},
		"KillOnCancel": func(t *testing.T, on runner, other *sandbox.Sandbox, args []string, sudo bool) (int, error) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			out := &startWriter{begun: make(chan struct{})}
			go func() { <-out.begun; cancel() }()
			_, err := on.RunCommand(ctx, args[0], args[1:], &sandbox.CommandOptions{KillOnCancel: true, Sudo: sudo, Stdout: out})
			assert.ErrorIs(t, err, context.Canceled)
			return killed, err
		},
		"Cmd.Cancel": func(t *testing.T, on runner, other *sandbox.Sandbox, args []string, sudo bool) (int, error) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			out := &startWriter{begun: make(chan struct{})}
			c := on.CommandContext(ctx, args[0], args[1:]...)
			c.Stdout, c.Sudo = out, sudo
			require.NoError(t, c.Start())
			<-out.begun
			cancel()
			err := c.Wait()
			exit, ok := errors.AsType[*sandbox.ExitError](err)
			require.True(t, ok, "%v", err)
			return exit.ExitCode(), err
		},
	}
	for where, machine := range map[string]struct {
		mode        sandboxtest.Mode
		withoutSudo bool
	}{
		"namespace": {mode: sandboxtest.Namespace}, "folder": {mode: sandboxtest.Folder}, "namespace without sudo": {sandboxtest.Namespace, true},
	} {
		t.Run(where, func(t *testing.T) {
			t.Parallel()
			mode := machine.mode
			srv, err := sandboxtest.NewServer(&sandboxtest.Options{Mode: mode})
			if err != nil {
				needs.Missing(t, err.Error())
			}
			t.Cleanup(func() { assert.NoError(t, srv.Close()) })
			sb, err := testkit.Client(t, srv, sandbox.ClientOptions{}).Create(t.Context(), nil)
			require.NoError(t, err)
			executable := fs.FileMode(0o755)
			require.NoError(t, sb.WriteFiles(t.Context(), []sandbox.File{{Path: "tool", Content: []byte("#!/bin/sh\n" + spawning), Mode: &executable}}, nil))
			other, err := testkit.Client(t, srv, sandbox.ClientOptions{}).Get(t.Context(), sb.Name(), nil)
			require.NoError(t, err)
			strange := uniqueDuration()
			stranger, err := sb.StartCommand(t.Context(), "sleep", []string{strange}, nil)
			require.NoError(t, err)
			require.NoError(t, stranger.Signal(t.Context(), sandbox.SIGSTOP))
			users := mode == sandboxtest.Namespace && srv.Enforces().Users
			var alice *sandbox.User
			if users {
				alice, err = sb.CreateUser(t.Context(), "alice")
				require.NoError(t, err)
			}
			if machine.withoutSudo {
				if !users {
					needs.Other(t, "needs root, for a sandbox whose sudo can be removed")
				}
				out, err := sb.RunCommand(t.Context(), "sh", []string{"-c", `while sudo=$(command -v sudo); do rm "$sudo"; done`}, &sandbox.CommandOptions{Sudo: true})
				require.NoError(t, err)
				require.Zero(t, out.ExitCode)
			}
			t.Run("kinds", func(t *testing.T) {
				// Run only two in parallel, because each kill searches the processes of all.
				slots := make(chan struct{}, 2)
				for kind, k := range kinds {
					if k.itself && (machine.withoutSudo || !users) || k.user && machine.withoutSudo {
						continue // only sudo can start a program as another user
					}
					for name, end := range ways {
						t.Run(kind+"/"+name, func(t *testing.T) {
							t.Parallel()
							needs.Programs(t, k.programs...)
							slots <- struct{}{}
							defer func() { <-slots }()
							var on runner = sb
							if k.user {
								if !users {
									needs.Other(t, "sandboxes have one user here")
								}
								on = alice
							}
							mark := uniqueDuration()
							// Kill the remaining processes, which the kills of all other
							// rows would search.
							defer killAll(t, mark)
							code, err := end(t, on, other, append(append([]string{}, k.command...), mark), k.sudo)
							assert.Equal(t, killed, code)
							left := func() int { return len(processesWithArgument(t, mark)) }
							switch {
							case tooBusy(err):
							case name == "Kill":
								assert.NoError(t, err)
								assert.Positive(t, left(), "Kill ends only the process itself")
							case k.alone:
								assert.ErrorIs(t, err, sandbox.ErrChildren)
								assert.Positive(t, left())
							default:
								assert.NotErrorIs(t, err, sandbox.ErrChildren)
								assert.Eventually(t, func() bool { return left() == 0 }, testkit.Patience, 30*time.Millisecond)
							}
						})
					}
				}
			})
			assert.Equal(t, []string{"T"}, values(processesWithArgument(t, strange)), "the unrelated process, which is still stopped")
		})
	}
}

// TestTreesOfOrdinaryUsers runs other tests in a process of an ordinary user, to whom the
// emulator and the sandboxes then belong.
func TestTreesOfOrdinaryUsers(t *testing.T) {
	t.Parallel()
	tests, passed := "^TestTreeOfAnotherClient$", []string{"TestTreeOfAnotherClient "}
	if needs.Slow() {
		tests, passed = "^(TestTrees|TestTreeOfAnotherClient)$", append(passed, "TestTrees/namespace ", "TestTrees/folder ")
	}
	cmd, env := testkit.AsNobody(t, tests)
	cmd.Args = append(cmd.Args, "-test.v")
	cmd.Env = append(os.Environ(), env)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	for _, name := range passed {
		assert.Contains(t, string(out), "--- PASS: "+name, "%s", out)
	}
}

func values(m map[string]string) (list []string) {
	for _, v := range m {
		list = append(list, v)
	}
	return list
}

// TestTreeOfAnotherClient: a handle that has not started the command finds its processes
// by the command's ID, if the client that started it has chosen the ID. The command runs
// with sudo, so the script that kills it needs root.
func TestTreeOfAnotherClient(t *testing.T) {
	t.Parallel()
	srv, sb := isolated.sandbox(t, nil)
	for known, serverIDs := range map[bool]bool{true: false, false: true} {
		if !known && !needs.Slow() {
			continue // TestSignalTreeWithoutShell also ends only the process itself
		}
		mark := uniqueDuration()
		one, err := testkit.Client(t, srv, sandbox.ClientOptions{ServerCommandIDs: serverIDs}).Get(t.Context(), sb.Name(), nil)
		require.NoError(t, err)
		c, err := one.StartCommand(t.Context(), "sh", []string{"-c", spawning, "sh", mark}, &sandbox.StartOptions{Sudo: true})
		require.NoError(t, err)
		firstLines(t, c, 1)
		same, err := sb.GetCommand(t.Context(), c.ID())
		require.NoError(t, err)
		err = same.SignalTree(t.Context(), sandbox.SIGKILL)
		if !known {
			assert.ErrorIs(t, err, sandbox.ErrChildren)
			assert.NotEmpty(t, processesWithArgument(t, mark))
			continue
		}
		require.NoError(t, err)
		assert.Eventually(t, func() bool { return len(processesWithArgument(t, mark)) == 0 }, testkit.Patience, 10*time.Millisecond)
	}
}

// TestLostScript: to end a command's processes, the client runs a script. If there is no
// result in time, the client kills the command's own process, and then runs another
// script for the others.
func TestLostScript(t *testing.T) {
	t.Parallel()
	for name, late := range map[string]bool{"lost": false, "late": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if late {
				needs.Long(t, "for the client, a late script looks like a lost one")
			}
			srv, gate, sb, _ := testkit.LightBehind(t, sandbox.ClientOptions{}, nil)
			mark := uniqueDuration()
			held := make(chan *http.Request, 1)
			var more atomic.Int32
			gate.Set(func(req *http.Request, next http.RoundTripper) (*http.Response, error) {
				if !bytes.Contains(readAll(t, req), []byte("sig=$1")) {
					return next.RoundTrip(req)
				}
				if len(held) > 0 {
					more.Add(1)
					return next.RoundTrip(req)
				}
				again := req.Clone(context.WithoutCancel(req.Context()))
				again.Body, _ = req.GetBody()
				held <- again
				<-req.Context().Done()
				return nil, req.Context().Err()
			})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			out := &startWriter{begun: make(chan struct{})}
			go func() { <-out.begun; cancel() }()
			_, err := sb.RunCommand(ctx, "sh", []string{"-c", spawning, "sh", mark}, &sandbox.CommandOptions{KillOnCancel: true, Stdout: out})
			assert.ErrorIs(t, err, context.Canceled)
			assert.Equal(t, 1, testkit.Count(srv, sandboxtest.KillCommand))
			// If the machine is too busy for the second script, the error says so.
			reported := errors.Is(err, sandbox.ErrChildren) || errors.Is(err, sandbox.ErrOutcomeUnknown)
			if !reported {
				assert.Positive(t, more.Load(), "scripts for the remaining processes: %v", err)
			}
			if late {
				resp, err := testkit.Transport(t).RoundTrip(<-held)
				require.NoError(t, err)
				_, _ = io.Copy(io.Discard, resp.Body)
				assert.NoError(t, resp.Body.Close())
			}
			if !reported {
				assert.Eventually(t, func() bool { return len(processesWithArgument(t, mark)) == 0 }, testkit.Patience, 10*time.Millisecond)
			}
		})
	}
}

// TestUnansweredKill: if the API does not respond to a kill, the error says that the
// command may still be running.
func TestUnansweredKill(t *testing.T) {
	t.Parallel()
	for name, run := range map[string]func(ctx context.Context, sb *sandbox.Sandbox, out io.Writer) error{
		"RunCommand": func(ctx context.Context, sb *sandbox.Sandbox, out io.Writer) error {
			_, err := sb.RunCommand(ctx, "sh", []string{"-c", "echo begun; sleep 600"}, &sandbox.CommandOptions{KillOnCancel: true, Stdout: out})
			return err
		},
		"Cmd": func(ctx context.Context, sb *sandbox.Sandbox, out io.Writer) error {
			c := sb.CommandContext(ctx, "sh", "-c", "echo begun; sleep 600")
			c.Stdout = out
			return c.Run()
		},
		"Cmd, WaitDelay": func(ctx context.Context, sb *sandbox.Sandbox, out io.Writer) error {
			c := sb.CommandContext(ctx, "sh", "-c", "echo begun; sleep 600")
			c.Stdout, c.Cancel, c.WaitDelay = out, nil, time.Millisecond
			return c.Run()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, gate, sb, _ := behind(t, sandbox.ClientOptions{}, nil)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			out := &startWriter{begun: make(chan struct{})}
			go func() {
				<-out.begun
				gate.Set(func(req *http.Request, _ http.RoundTripper) (*http.Response, error) {
					<-req.Context().Done()
					return nil, req.Context().Err()
				})
				cancel()
			}()
			err := run(ctx, sb, out)
			assert.ErrorIs(t, err, context.Canceled)
			assert.ErrorIs(t, err, sandbox.ErrOutcomeUnknown)
			gate.Set(nil)
		})
	}
}

// readAll returns the body of a request. The request can still be sent.
func readAll(t *testing.T, req *http.Request) []byte {
	if req.Body == nil || req.GetBody == nil {
		return nil
	}
	body, err := req.GetBody()
	require.NoError(t, err)
	defer body.Close()
	data, err := io.ReadAll(body)
	require.NoError(t, err)
	return data
}

// TestStrangersAreSpared ends commands with none to two children, by three signals, in a
// random order. Unrelated processes, which are stopped, survive.
func TestStrangersAreSpared(t *testing.T) {
	t.Parallel()
	needs.Long(t, "1,000 kills")
	const kills, atOnce = 1000, 4
	sb := share(t, nil)
	var strange []string
	for range 3 {
		strange = append(strange, uniqueDuration())
		c, err := sb.StartCommand(t.Context(), "sleep", []string{strange[len(strange)-1]}, nil)
		require.NoError(t, err)
		require.NoError(t, c.Signal(t.Context(), sandbox.SIGSTOP))
	}
	order := rand.New(rand.NewPCG(testkit.Seed(t), 0)).Perm(kills)
	var group sync.WaitGroup
	for part := range slices.Chunk(order, kills/atOnce) {
		group.Go(func() {
			for _, kind := range part {
				n, sig := kind%3, []sandbox.Signal{sandbox.SIGKILL, sandbox.SIGTERM, sandbox.SIGHUP}[kind/3%3]
				mark := uniqueDuration()
				script := strings.Repeat(`sleep "$1" & `, n) + `exec sleep "$1"`
				c, err := sb.StartCommand(t.Context(), "sh", []string{"-c", script, "sh", mark}, nil)
				if !assert.NoError(t, err) {
					return
				}
				assert.NoError(t, c.SignalTree(t.Context(), sig))
				assert.Eventually(t, func() bool { return len(processesWithArgument(t, mark)) == 0 }, testkit.Patience, 30*time.Millisecond)
			}
		})
	}
	group.Wait()
	for _, s := range strange {
		assert.Equal(t, []string{"T"}, values(processesWithArgument(t, s)))
	}
}
