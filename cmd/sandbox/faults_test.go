package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/internal/test/needs"
	"github.com/go-vercel/sandbox/sandboxtest"
)

// chatty writes to both streams, records that it ran, and exits with a code.
const chatty = `echo ran >> runs; printf 'one\ntwo ☃\n'; printf 'err\n' >&2; printf 'last'; exit 3`

const chattyOut = "one\ntwo ☃\nlast"

// TestLostCreation loses the response to a creation. A sandbox with a name is found. With
// --rm, no sandbox remains.
func TestLostCreation(t *testing.T) {
	t.Parallel()
	d := newWorkspace(t, nil)
	d.server.Inject(sandboxtest.Fault{Operation: sandboxtest.CreateSandbox, ActThenStatus: 502, Times: 1})
	got := d.run("", "run", "--rm", "--silent", "--no-echo", "echo", "fine")
	assert.Equal(t, outcome{0, "fine\n", ""}, got)
	assert.Empty(t, d.ok("ls", "-a", "-q"))
	d.server.Inject(sandboxtest.Fault{Operation: sandboxtest.CreateSandbox, ActThenStatus: 502, Times: 1})
	assert.Equal(t, "named", d.ok("create", "--name", "named"))
	// If the lookup fails too, the sandbox that may have been created is removed.
	d.ok("rm", "named")
	d.server.Inject(sandboxtest.Fault{Operation: sandboxtest.CreateSandbox, ActThenStatus: 502, Times: 1})
	remove := d.server.Inject(sandboxtest.Fault{Operation: sandboxtest.GetSandbox, Status: 403})
	got = d.run("", "run", "--rm", "--silent", "--no-echo", "echo", "fine")
	remove()
	assert.Equal(t, 8, got.code, got.stderr)
	assert.Empty(t, got.stdout)
	assert.Empty(t, d.ok("ls", "-a", "-q"))
}

// TestCutFiles cuts a copy to a file, to standard output and to the same sandbox at each
// of its bytes.
func TestCutFiles(t *testing.T) {
	t.Parallel()
	d := newWorkspace(t, nil)
	d.ok("create", "--name", "c")
	const text = "one\ntwo ☃\nlast"
	d.write("up", text)
	d.ok("cp", "up", "c:file")
	step := int64(1)
	if !needs.Slow() {
		step = 7
	}
	for n := int64(1); n <= int64(len(text)); n += step {
		for _, destination := range []string{"-", "down", "c:copy"} {
			remove := d.server.Inject(sandboxtest.Fault{Operation: sandboxtest.ReadFile, CutAfterBytes: n, Times: 1})
			got := d.run("", "cp", "-q", "c:file", destination)
			remove()
			require.Zero(t, got.code, "%s, cut after %d bytes: %s", destination, n, got.stderr)
			assert.Empty(t, got.stderr)
			if destination == "down" {
				data, err := os.ReadFile(filepath.Join(d.dir, "down"))
				require.NoError(t, err)
				got.stdout = string(data)
			} else if destination == "c:copy" {
				got.stdout = d.ok("read", "c", "copy")
			}
			assert.Equal(t, text, got.stdout, "%s, cut after %d bytes", destination, n)
		}
	}
	// A file that can't be downloaded leaves no partial file.
	remove := d.server.Inject(sandboxtest.Fault{Operation: sandboxtest.ReadFile, CutAfterBytes: 7})
	for _, destination := range []string{"part", "c:part"} {
		got := d.run("", "cp", "c:file", destination)
		assert.NotZero(t, got.code)
	}
	assert.NotZero(t, d.run("", "read", "c", "file").code)
	remove()
	assert.NoFileExists(t, filepath.Join(d.dir, "part"))
	assert.Equal(t, 3, d.run("", "read", "c", "part").code)
}

// TestChangedFile cuts the connection to a file that changes at each read: halves of two
// versions must not be joined.
func TestChangedFile(t *testing.T) {
	t.Parallel()
	d := newWorkspace(t, &sandboxtest.Options{Mode: sandboxtest.Folder}) // in folder mode, the test can change the sandbox's files directly
	d.ok("create", "--name", "c")
	file := filepath.Join(strings.TrimSpace(d.ok("exec", "--no-echo", "c", "--", "pwd")), "file")
	change := func(*http.Request) bool {
		assert.NoError(t, os.WriteFile(file+".next", []byte(rand.Text()), 0o644))
		assert.NoError(t, os.Rename(file+".next", file))
		return false // only the next fault takes effect
	}
	d.server.Inject(sandboxtest.Fault{Operation: sandboxtest.ReadFile, Match: change})
	d.server.Inject(sandboxtest.Fault{Operation: sandboxtest.ReadFile, CutAfterBytes: 20, Times: 1})
	got := d.run("", "cp", "c:file", "-")
	assert.Equal(t, 1, got.code)
	assert.Len(t, got.stdout, 20)
	assert.Contains(t, got.stderr, "has changed")
}

func TestRateLimit(t *testing.T) {
	t.Parallel()
	d := newWorkspace(t, nil)
	d.ok("create", "--name", "c")
	d.server.Inject(sandboxtest.Fault{Operation: sandboxtest.ListSandboxes, Status: 429, RetryAfter: time.Second, Times: 1})
	assert.Equal(t, "c\n", d.ok("ls", "-q"))
	// A refused start is sent again, and the command runs once.
	d.server.Inject(sandboxtest.Fault{Operation: sandboxtest.RunCommand, Status: 429, RetryAfter: time.Second, Times: 1})
	assert.Equal(t, outcome{3, chattyOut, "err\n"}, d.run("", "exec", "--no-echo", "c", "--", "sh", "-c", chatty))
	assert.Equal(t, "ran\n", d.ok("cp", "c:runs", "-"))
	remove := d.server.Inject(sandboxtest.Fault{Operation: sandboxtest.ListSandboxes, Status: 429})
	defer remove()
	got := d.run("", "ls")
	assert.Equal(t, 7, got.code)
	assert.Contains(t, got.stderr, "429")
}

// TestInterrupt interrupts run --rm at each of its stages. The exit code is the signal's,
// and no sandbox or process remains.
func TestInterrupt(t *testing.T) {
	t.Parallel()
	const slow = 400 * time.Millisecond
	for name, stage := range map[string]struct {
		op    sandboxtest.Operation
		delay time.Duration
	}{
		"before the creation": {},
		"the creation":        {sandboxtest.CreateSandbox, slow},
		"the upload":          {sandboxtest.WriteFiles, slow},
		"the start":           {sandboxtest.RunCommand, slow},
		"the run":             {sandboxtest.RunCommand, 0},
		"the removal":         {sandboxtest.DeleteSandbox, slow},
	} {
		signals := []syscall.Signal{syscall.SIGINT, syscall.SIGTERM}
		if !needs.Slow() && name != "the run" && name != "the creation" {
			signals = signals[:1] // without SANDBOX_SLOW=1, each signal only once in a command and once outside of one
		}
		for _, sig := range signals {
			t.Run(name+" "+sig.String(), func(t *testing.T) {
				t.Parallel()
				d := newWorkspace(t, nil)
				if stage.delay > 0 {
					d.server.Inject(sandboxtest.Fault{Operation: stage.op, Delay: stage.delay})
				}
				sleep := endless()
				command := "exec " + sleep
				if stage.op == sandboxtest.DeleteSandbox {
					command = "true"
				}
				args := []string{"run", "--rm", "--no-echo"}
				if stage.op == sandboxtest.WriteFiles {
					d.write("up", "x")
					args = append(args, "--upload", "up")
				}
				cmd := d.command(t.Context(), append(args, "--", "sh", "-c", command)...)
				var stderr bytes.Buffer
				cmd.Stderr = &stderr
				require.NoError(t, cmd.Start())
				if stage.op != "" {
					d.await(stage.op)
				}
				require.NoError(t, cmd.Process.Signal(sig))
				err := cmd.Wait()
				code := cmd.ProcessState.ExitCode()
				switch {
				case stage.op == sandboxtest.DeleteSandbox:
					assert.Contains(t, []int{0, 128 + int(sig)}, code, stderr.String())
				case stage.op == "":
					// The program may not handle signals yet, so any exit code is right.
					var exit *exec.ExitError
					require.ErrorAs(t, err, &exit)
				default:
					assert.Equal(t, 128+int(sig), code, stderr.String())
				}
				d.requireNoSandbox()
				assert.Empty(t, processes(t, sleep))
			})
		}
	}
}

// TestBrokenPipe closes the reader of the output: the command ends, as in a shell's pipe,
// and run --rm cleans up.
func TestBrokenPipe(t *testing.T) {
	t.Parallel()
	d := newWorkspace(t, nil)
	d.ok("create", "--name", "c")
	for name, options := range map[string][]string{
		"run": {"run", "--rm"}, "exec": {"exec", "c"}, "with input": {"exec", "-i", "c"}, "binary": {"exec", "--binary", "c"},
	} {
		t.Run(name, func(t *testing.T) {
			yes := strings.Replace(endless(), "sleep", "yes", 1)
			cmd := d.command(t.Context(), append(append(options, "--no-echo", "--"), strings.Fields(yes)...)...)
			out, err := cmd.StdoutPipe()
			require.NoError(t, err)
			var stderr bytes.Buffer
			cmd.Stderr = &stderr
			require.NoError(t, cmd.Start())
			_, err = io.ReadFull(out, make([]byte, 5))
			require.NoError(t, err)
			require.NoError(t, out.Close())
			_ = cmd.Wait() // the test checks the exit code
			assert.Equal(t, 141, cmd.ProcessState.ExitCode(), stderr.String())
			assert.NotContains(t, stderr.String(), "broken pipe")
			assert.Eventually(t, func() bool { return len(processes(t, yes)) == 0 }, time.Minute, 20*time.Millisecond)
		})
	}
	assert.Equal(t, "c\n", d.ok("ls", "-a", "-q"))
	cmd := d.command(t.Context(), "ls")
	read, write, err := os.Pipe()
	require.NoError(t, err)
	require.NoError(t, read.Close())
	cmd.Stdout = write
	_ = cmd.Run() // the test checks the exit code
	require.NoError(t, write.Close())
	assert.Equal(t, 141, cmd.ProcessState.ExitCode())
}

// TestSecondInterrupt kills a command that ignores the first signal.
func TestSecondInterrupt(t *testing.T) {
	t.Parallel()
	d := newWorkspace(t, nil)
	d.ok("create", "--name", "c")
	d.seen()
	cmd := d.command(t.Context(), "exec", "--no-echo", "c", "--", "sh", "-c", `trap "echo ignored" INT; echo ready; while :; do sleep 0.1; done`)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	buf := make([]byte, 64)
	n, err := out.Read(buf)
	require.NoError(t, err)
	require.Equal(t, "ready\n", string(buf[:n]))
	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	n, err = out.Read(buf)
	require.NoError(t, err)
	require.Equal(t, "ignored\n", string(buf[:n]))
	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	var exit *exec.ExitError
	require.ErrorAs(t, cmd.Wait(), &exit)
	assert.Contains(t, []int{130, 137}, exit.ExitCode())
	assert.Eventually(t, func() bool { return d.ok("ps", "-q", "c") == "" }, time.Minute, 50*time.Millisecond)
}

// TestInterruptReachesChildren: Ctrl-C ends the command and its children, also of a
// command with standard input.
func TestInterruptReachesChildren(t *testing.T) {
	t.Parallel()
	d := newWorkspace(t, nil)
	d.ok("create", "--name", "c")
	for name, options := range map[string][]string{
		"exec": {"exec", "c"}, "with input": {"exec", "-i", "c"}, "kill-on-exit": {"exec", "--kill-on-exit", "c"},
	} {
		t.Run(name, func(t *testing.T) {
			child, grandchild := endless(), endless()
			// A shell makes its background processes ignore SIGINT.
			script := []string{"sh", "-c", "sh -c '" + grandchild + "; true'; " + child}
			args := append(append(options, "--no-echo", "--"), script...)
			cmd := d.command(t.Context(), args...)
			stdin, err := cmd.StdinPipe()
			require.NoError(t, err)
			defer stdin.Close()
			var stderr bytes.Buffer
			cmd.Stderr = &stderr
			require.NoError(t, cmd.Start())
			require.Eventually(t, func() bool { return len(processes(t, grandchild)) > 0 }, time.Minute, 10*time.Millisecond)
			require.NoError(t, cmd.Process.Signal(os.Interrupt))
			_ = cmd.Wait() // the test checks the exit code
			assert.Contains(t, []int{130, 137}, cmd.ProcessState.ExitCode(), stderr.String())
			assert.Empty(t, stderr.String())
			assert.Eventually(t, func() bool { return len(processes(t, grandchild)) == 0 }, time.Minute, 10*time.Millisecond)
			assert.Empty(t, processes(t, child))
		})
	}
}

// TestSlowLog: output that is late because the API is slow does not look like the silence
// of a command.
func TestSlowLog(t *testing.T) {
	t.Parallel()
	d := newWorkspace(t, nil)
	d.ok("create", "--name", "c")
	id := strings.TrimSpace(d.ok("exec", "-d", "c", "--", "sh", "-c", "echo begun; exec sleep 1000"))
	d.waitForLog(id, "begun")
	d.server.Inject(sandboxtest.Fault{Operation: sandboxtest.CommandLogs, Delay: 2 * time.Second})
	assert.Equal(t, outcome{0, "begun\n", ""}, d.run("", "logs", "c"))
}

// await waits for a request of an operation.
func (d *workspace) await(op sandboxtest.Operation) {
	d.t.Helper()
	require.Eventually(d.t, func() bool {
		for _, r := range d.server.Requests() {
			if r.Operation == op {
				return true
			}
		}
		return false
	}, time.Minute, 5*time.Millisecond, "%s did not come", op)
}

var sleeps atomic.Int64

// endless returns a command that never ends and has a unique command line.
func endless() string {
	return fmt.Sprintf("sleep %d.%d", 40_000+os.Getpid(), sleeps.Add(1))
}

// processes returns the processes of this machine with a command line.
func processes(t *testing.T, line string) (found []string) {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	require.NoError(t, err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err == nil && strings.ReplaceAll(strings.TrimRight(string(text), "\x00"), "\x00", " ") == line {
			found = append(found, file)
		}
	}
	return found
}

// requireNoSandbox checks that no sandbox exists, in any state.
func (d *workspace) requireNoSandbox() {
	d.t.Helper()
	left, err := sandbox.Collect(d.server.Client().List(context.WithoutCancel(d.t.Context()), nil))
	require.NoError(d.t, errors.Join(err))
	assert.Empty(d.t, left)
}

// TestLiveInput exchanges lines with a command through pipes.
func TestLiveInput(t *testing.T) {
	t.Parallel()
	d := newWorkspace(t, nil)
	d.ok("create", "--name", "c")
	cmd := d.command(t.Context(), "exec", "-i", "--no-echo", "c", "--", "sh", "-c", `while read -r line; do echo "got $line"; done; echo end; exit 4`)
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	lines := bufio.NewScanner(out)
	for i := range 5 {
		_, err := fmt.Fprintln(in, i)
		require.NoError(t, err)
		require.True(t, lines.Scan())
		assert.Equal(t, fmt.Sprint("got ", i), lines.Text())
	}
	require.NoError(t, in.Close())
	require.True(t, lines.Scan())
	assert.Equal(t, "end", lines.Text())
	require.NoError(t, lines.Err())
	var exit *exec.ExitError
	require.ErrorAs(t, cmd.Wait(), &exit)
	assert.Equal(t, 4, exit.ExitCode())
}
