package client_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/go-vercel/sandbox/internal/test/needs"
	"github.com/go-vercel/sandbox/internal/test/testkit"

	"github.com/go-vercel/sandbox"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// anyCmd has the methods that exec.Cmd and sandbox.Cmd share.
type anyCmd interface {
	Run() error
	Start() error
	Wait() error
	Output() ([]byte, error)
	CombinedOutput() ([]byte, error)
	StdoutPipe() (io.ReadCloser, error)
	StderrPipe() (io.ReadCloser, error)
	StdinPipe() (io.WriteCloser, error)
	String() string
}

// cmdFields are the fields that exec.Cmd and sandbox.Cmd share.
type cmdFields struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	env            []string
	cancel         func() error
	noCancel       bool
	waitDelay      time.Duration
}

type makeCmd func(ctx context.Context, f cmdFields, name string, arg ...string) anyCmd

func localCmd(dir string) makeCmd {
	return func(ctx context.Context, f cmdFields, name string, arg ...string) anyCmd {
		c := exec.CommandContext(ctx, name, arg...)
		c.Dir, c.Stdin, c.Stdout, c.Stderr, c.WaitDelay = dir, f.stdin, f.stdout, f.stderr, f.waitDelay
		if f.env != nil {
			c.Env = append(c.Environ(), f.env...)
		}
		if f.cancel != nil || f.noCancel {
			c.Cancel = f.cancel
		}
		return c
	}
}

func remoteCmd(sb *sandbox.Sandbox, dir string) makeCmd {
	return func(ctx context.Context, f cmdFields, name string, arg ...string) anyCmd {
		c := sb.CommandContext(ctx, name, arg...)
		c.Dir, c.Stdin, c.Stdout, c.Stderr, c.WaitDelay = dir, f.stdin, f.stdout, f.stderr, f.waitDelay
		if f.env != nil {
			c.Env = append(c.Environ(), f.env...)
		}
		if f.cancel != nil || f.noCancel {
			c.Cancel = f.cancel
		}
		return c
	}
}

// cmdOutcome is the part of a run that must be the same for both kinds of Cmd.
type cmdOutcome struct {
	stdout, stderr string
	err            string
	code           int
	is             map[string]bool
}

func cmdOutcomeOf(stdout, stderr []byte, err error) cmdOutcome {
	o := cmdOutcome{stdout: string(stdout), stderr: string(stderr), is: map[string]bool{}}
	if err == nil {
		return o
	}
	o.err = err.Error()
	for name, target := range map[string]error{
		"not found": exec.ErrNotFound, "cancelled": context.Canceled, "deadline": context.DeadlineExceeded,
		"wait delay": exec.ErrWaitDelay, "short": io.ErrShortWrite, "closed": os.ErrClosed, "own": errOwn,
	} {
		o.is[name] = errors.Is(err, target)
	}
	if e, ok := errors.AsType[*exec.ExitError](err); ok {
		o.code = e.ExitCode()
		o.stderr += string(e.Stderr)
	}
	if e, ok := errors.AsType[*sandbox.ExitError](err); ok {
		o.code = e.ExitCode()
		o.stderr += string(e.Stderr)
	}
	if e, ok := errors.AsType[*exec.Error](err); ok {
		o.is["exec.Error "+e.Name] = true
	}
	return o
}

var errOwn = errors.New("own error")

type failingWriter struct{}

func (failingWriter) Write([]byte) (int, error) { return 0, errOwn }

// oneByte hides every method of a reader but Read, and reads slowly.
type oneByte struct{ r io.Reader }

func (o oneByte) Read(p []byte) (int, error) { return o.r.Read(p[:min(1, len(p))]) }

func output(c anyCmd) cmdOutcome {
	out, err := c.Output()
	return cmdOutcomeOf(out, nil, err)
}

func run(c anyCmd) cmdOutcome { return cmdOutcomeOf(nil, nil, c.Run()) }

// programs are the programs that TestCmdLikeOSExec runs with both kinds of Cmd.
var programs = map[string]func(t *testing.T, mk makeCmd) cmdOutcome{
	"no output": func(t *testing.T, mk makeCmd) cmdOutcome { return run(mk(t.Context(), cmdFields{}, "true")) },
	"exit 1":    func(t *testing.T, mk makeCmd) cmdOutcome { return run(mk(t.Context(), cmdFields{}, "false")) },
	"exit 7 with output on both streams": func(t *testing.T, mk makeCmd) cmdOutcome {
		var stdout, stderr bytes.Buffer
		err := mk(t.Context(), cmdFields{stdout: &stdout, stderr: &stderr}, "sh", "-c", "echo out; echo err >&2; exit 7").Run()
		return cmdOutcomeOf(stdout.Bytes(), stderr.Bytes(), err)
	},
	"output": func(t *testing.T, mk makeCmd) cmdOutcome {
		return output(mk(t.Context(), cmdFields{}, "printf", "%s|", "a b", "", "$HOME", "ü\n"))
	},
	"the error of Output contains stderr": func(t *testing.T, mk makeCmd) cmdOutcome {
		return output(mk(t.Context(), cmdFields{}, "sh", "-c", "echo out; echo err >&2; exit 2"))
	},
	"the error of Output has a shortened stderr": func(t *testing.T, mk makeCmd) cmdOutcome {
		return output(mk(t.Context(), cmdFields{}, "sh", "-c", "seq 1 30000 >&2; exit 2"))
	},
	"stderr with a writer is not in the error": func(t *testing.T, mk makeCmd) cmdOutcome {
		var stderr bytes.Buffer
		out, err := mk(t.Context(), cmdFields{stderr: &stderr}, "sh", "-c", "echo err >&2; exit 2").Output()
		return cmdOutcomeOf(out, stderr.Bytes(), err)
	},
	"combined output": func(t *testing.T, mk makeCmd) cmdOutcome {
		out, err := mk(t.Context(), cmdFields{}, "sh", "-c", "echo one; echo two >&2; echo three; exit 3").CombinedOutput()
		lines := strings.SplitAfter(string(out), "\n")
		slices.Sort(lines) // the order of the two streams is not defined
		return cmdOutcomeOf([]byte(strings.Join(lines, "")), nil, err)
	},
	"both streams in their order": func(t *testing.T, mk makeCmd) cmdOutcome {
		both := &answeringWriter{}
		c := mk(t.Context(), cmdFields{stdout: both, stderr: both}, "sh", "-c", "echo one; read x; echo two >&2; read x; echo three; exit 3")
		in, err := c.StdinPipe()
		require.NoError(t, err)
		both.to = in
		err = c.Run()
		return cmdOutcomeOf(both.seen.Bytes(), nil, err)
	},
	"no program": func(t *testing.T, mk makeCmd) cmdOutcome { return run(mk(t.Context(), cmdFields{}, "")) },
	"a missing program": func(t *testing.T, mk makeCmd) cmdOutcome {
		return run(mk(t.Context(), cmdFields{}, "no-such-program"))
	},
	"environment": func(t *testing.T, mk makeCmd) cmdOutcome {
		return output(mk(t.Context(), cmdFields{env: []string{"A=1", "B=x=y", "A=2", "C="}}, "sh", "-c", `echo "$A|$B|$C|"`))
	},
	"directory and PWD": func(t *testing.T, mk makeCmd) cmdOutcome {
		o := output(mk(t.Context(), cmdFields{}, "sh", "-c", `test "$PWD" = "$(pwd)" && basename "$PWD"`))
		return o
	},
	"stdin": func(t *testing.T, mk makeCmd) cmdOutcome {
		return output(mk(t.Context(), cmdFields{stdin: strings.NewReader("hello\nworld\n")}, "tr", "a-z", "A-Z"))
	},
	"stdin of a buffer": func(t *testing.T, mk makeCmd) cmdOutcome {
		return output(mk(t.Context(), cmdFields{stdin: bytes.NewBufferString("in\n")}, "cat"))
	},
	"stdin of unknown length": func(t *testing.T, mk makeCmd) cmdOutcome {
		return output(mk(t.Context(), cmdFields{stdin: oneByte{strings.NewReader("slowly\n")}}, "cat"))
	},
	"empty stdin": func(t *testing.T, mk makeCmd) cmdOutcome {
		return output(mk(t.Context(), cmdFields{stdin: strings.NewReader("")}, "wc", "-c"))
	},
	"no stdin": func(t *testing.T, mk makeCmd) cmdOutcome { return output(mk(t.Context(), cmdFields{}, "wc", "-c")) },
	"stdin and an exit code": func(t *testing.T, mk makeCmd) cmdOutcome {
		return output(mk(t.Context(), cmdFields{stdin: strings.NewReader("5\n")}, "sh", "-c", `read n; exit "$n"`))
	},
	"stdin that nobody reads": func(t *testing.T, mk makeCmd) cmdOutcome {
		return output(mk(t.Context(), cmdFields{stdin: strings.NewReader(strings.Repeat("x", 1<<20))}, "echo", "done"))
	},
	"stdin whose Read fails": func(t *testing.T, mk makeCmd) cmdOutcome {
		o := run(mk(t.Context(), cmdFields{stdin: io.MultiReader(strings.NewReader("a"), failingReader{})}, "cat"))
		o.err = "" // os/exec words it differently
		return o
	},
	"stdin whose Read fails after the end": func(t *testing.T, mk makeCmd) cmdOutcome {
		o := run(mk(t.Context(), cmdFields{stdin: lateFailingReader{}}, "true"))
		o.err = "" // os/exec words it differently
		return o
	},
	"stdin pipe": func(t *testing.T, mk makeCmd) cmdOutcome {
		c := mk(t.Context(), cmdFields{}, "cat")
		in, err := c.StdinPipe()
		require.NoError(t, err)
		go func() {
			defer in.Close()
			io.WriteString(in, "through a pipe\n")
		}()
		return output(c)
	},
	"stdin pipe that is written after the start": func(t *testing.T, mk makeCmd) cmdOutcome {
		var stdout bytes.Buffer
		c := mk(t.Context(), cmdFields{stdout: &stdout}, "cat")
		in, err := c.StdinPipe()
		require.NoError(t, err)
		require.NoError(t, c.Start())
		_, err = io.WriteString(in, "later\n")
		require.NoError(t, err)
		require.NoError(t, in.Close())
		err = c.Wait()
		return cmdOutcomeOf(stdout.Bytes(), nil, err)
	},
	"stdin pipe that is closed late": func(t *testing.T, mk makeCmd) cmdOutcome {
		var stdout bytes.Buffer
		c := mk(t.Context(), cmdFields{stdout: &stdout}, "head", "-n", "1")
		in, err := c.StdinPipe()
		require.NoError(t, err)
		require.NoError(t, c.Start())
		_, err = io.WriteString(in, "one\ntwo\n")
		require.NoError(t, err)
		err = c.Wait() // the command ends by itself and closes the pipe
		_, writeErr := io.WriteString(in, "three\n")
		assert.Error(t, writeErr)
		_ = in.Close()
		return cmdOutcomeOf(stdout.Bytes(), nil, err)
	},
	"stdin pipe that is never written": func(t *testing.T, mk makeCmd) cmdOutcome {
		c := mk(t.Context(), cmdFields{}, "sh", "-c", "exit 3")
		_, err := c.StdinPipe()
		require.NoError(t, err)
		require.NoError(t, c.Start())
		return cmdOutcomeOf(nil, nil, c.Wait())
	},
	"stdin pipe of a command that ends during a write": func(t *testing.T, mk makeCmd) cmdOutcome {
		c := mk(t.Context(), cmdFields{}, "sh", "-c", "head -c 1000 >/dev/null; exit 5")
		in, err := c.StdinPipe()
		require.NoError(t, err)
		require.NoError(t, c.Start())
		done := make(chan error, 1)
		go func() {
			var err error
			for err == nil {
				_, err = in.Write(make([]byte, 100_000))
			}
			done <- err
		}()
		err = c.Wait()
		assert.Error(t, <-done)
		return cmdOutcomeOf(nil, nil, err)
	},
	"long stdin of a command that ends early": func(t *testing.T, mk makeCmd) cmdOutcome {
		return output(mk(t.Context(), cmdFields{stdin: struct{ io.Reader }{strings.NewReader(strings.Repeat("x", 2<<20))}}, "head", "-c", "3"))
	},
	"long stdin": func(t *testing.T, mk makeCmd) cmdOutcome {
		return output(mk(t.Context(), cmdFields{stdin: io.LimitReader(zeros{}, 2<<20)}, "wc", "-c"))
	},
	"long stdin of a command that reads late": func(t *testing.T, mk makeCmd) cmdOutcome {
		return output(mk(t.Context(), cmdFields{stdin: struct{ io.Reader }{strings.NewReader(strings.Repeat("x", 300_000))}}, "sh", "-c", "sleep .3; wc -c"))
	},
	"stdout pipe that is closed early": func(t *testing.T, mk makeCmd) cmdOutcome {
		c := mk(t.Context(), cmdFields{}, "yes")
		stdout, err := c.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, c.Start())
		_, err = io.ReadFull(stdout, make([]byte, 10))
		require.NoError(t, err)
		require.NoError(t, stdout.Close())
		assert.Error(t, c.Wait()) // os/exec says "signal: broken pipe", this package an exit code
		return cmdOutcome{}
	},
	"stdout pipe": func(t *testing.T, mk makeCmd) cmdOutcome {
		c := mk(t.Context(), cmdFields{}, "sh", "-c", "seq 1 50000; echo err >&2; exit 4")
		stdout, err := c.StdoutPipe()
		require.NoError(t, err)
		stderr, err := c.StderrPipe()
		require.NoError(t, err)
		require.NoError(t, c.Start())
		out, err := io.ReadAll(stdout)
		require.NoError(t, err)
		errs, err := io.ReadAll(stderr)
		require.NoError(t, err)
		return cmdOutcomeOf(out, errs, c.Wait())
	},
	"stdout pipe that nobody reads": func(t *testing.T, mk makeCmd) cmdOutcome {
		c := mk(t.Context(), cmdFields{}, "echo", "lost")
		stdout, err := c.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, c.Start())
		err = c.Wait()
		_, readErr := io.ReadAll(stdout)
		return cmdOutcomeOf(nil, nil, errors.Join(err, readErr))
	},
	"a failing writer": func(t *testing.T, mk makeCmd) cmdOutcome {
		return run(mk(t.Context(), cmdFields{stdout: failingWriter{}}, "echo", "x"))
	},
	"a failing writer of a failing command": func(t *testing.T, mk makeCmd) cmdOutcome {
		return run(mk(t.Context(), cmdFields{stdout: failingWriter{}}, "sh", "-c", "echo x; exit 9"))
	},
	"a context that has ended before the start": func(t *testing.T, mk makeCmd) cmdOutcome {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		return run(mk(ctx, cmdFields{}, "true"))
	},
	"a Cancel that sends SIGTERM": func(t *testing.T, mk makeCmd) cmdOutcome {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var c anyCmd
		out := &notifyWriter{text: "ready", notify: cancel}
		c = mk(ctx, cmdFields{stdout: out, cancel: func() error { return terminate(c) }}, "sh", "-c", waitingScript("echo bye; exit 5"))
		return cmdOutcomeOf(nil, nil, c.Run())
	},
	"a Cancel after which the command succeeds": func(t *testing.T, mk makeCmd) cmdOutcome {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var c anyCmd
		c = mk(ctx, cmdFields{stdout: &notifyWriter{text: "ready", notify: cancel}, cancel: func() error { return terminate(c) }},
			"sh", "-c", waitingScript("exit 0"))
		return cmdOutcomeOf(nil, nil, c.Run())
	},
	"a Cancel that fails": func(t *testing.T, mk makeCmd) cmdOutcome {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		return cmdOutcomeOf(nil, nil, endedByCancel(ctx, t, mk, cancel, errOwn))
	},
	"a Cancel that returns ErrProcessDone": func(t *testing.T, mk makeCmd) cmdOutcome {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		return cmdOutcomeOf(nil, nil, endedByCancel(ctx, t, mk, cancel, os.ErrProcessDone))
	},
	"no Cancel": func(t *testing.T, mk makeCmd) cmdOutcome {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		c := mk(ctx, cmdFields{stdout: &notifyWriter{text: "ready", notify: cancel}, noCancel: true}, "sh", "-c", "echo ready; sleep .3")
		return cmdOutcomeOf(nil, nil, c.Run())
	},
	"misuse": func(t *testing.T, mk makeCmd) cmdOutcome {
		var all []error
		c := mk(t.Context(), cmdFields{}, "true")
		all = append(all, c.Wait(), c.Run(), c.Run(), c.Wait())
		_, err := c.StdoutPipe()
		all = append(all, err)
		_, err = c.StderrPipe()
		all = append(all, err)
		_, err = c.StdinPipe()
		all = append(all, err)
		c = mk(t.Context(), cmdFields{stdout: io.Discard, stderr: io.Discard, stdin: strings.NewReader("")}, "true")
		for _, fn := range []func() ([]byte, error){c.Output, c.CombinedOutput} {
			_, err := fn()
			all = append(all, err)
		}
		_, err = c.StdoutPipe()
		all = append(all, err)
		_, err = c.StderrPipe()
		all = append(all, err)
		_, err = c.StdinPipe()
		all = append(all, err)
		_, err = mk(t.Context(), cmdFields{stderr: io.Discard}, "true").CombinedOutput()
		all = append(all, err)
		return cmdOutcomeOf(nil, nil, errors.Join(all...))
	},
}

// onlySlow lists the programs that need SANDBOX_SLOW=1, because other programs cover each
// part of them.
var onlySlow = []string{
	"no output", "exit 1", "stderr with a writer is not in the error", "stdin of a buffer", "empty stdin", "stdin and an exit code",
	"stdin pipe of a command that ends during a write", "long stdin", "long stdin of a command that reads late", "a failing writer",
	"stdin pipe that is never written", "a Cancel that fails", "combined output", "stdin of unknown length",
}

// zeros is an endless input.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

type failingReader struct{}

func (failingReader) Read([]byte) (int, error) { return 0, errOwn }

// lateFailingReader fails after a short program has most likely ended. The outcome is the
// same if the program is still running.
type lateFailingReader struct{}

func (lateFailingReader) Read([]byte) (int, error) {
	testkit.Linger(300 * time.Millisecond)
	return 0, errOwn
}

// notifyWriter calls notify once, when the written output contains text.
type notifyWriter struct {
	seen   bytes.Buffer
	text   string
	notify func()
	done   atomic.Bool
}

func (w *notifyWriter) Write(p []byte) (int, error) {
	w.seen.Write(p)
	if strings.Contains(w.seen.String(), w.text) && !w.done.Swap(true) {
		w.notify()
	}
	return len(p), nil
}

// answeringWriter writes an empty line to a program's input for each line of its output.
type answeringWriter struct {
	seen bytes.Buffer
	to   io.Writer
}

func (w *answeringWriter) Write(p []byte) (int, error) {
	for range bytes.Count(p, []byte("\n")) {
		_, _ = io.WriteString(w.to, "\n") // the program may have ended
	}
	return w.seen.Write(p)
}

// endedByCancel runs a command and calls cancel, which ends its context, once the command
// is ready. The field Cancel of the Cmd ends the command by closing its input, and returns
// result.
func endedByCancel(ctx context.Context, t *testing.T, mk makeCmd, cancel func(), result error) error {
	var in io.WriteCloser
	c := mk(ctx, cmdFields{
		stdout: &notifyWriter{text: "ready", notify: cancel},
		cancel: func() error { assert.NoError(t, in.Close()); return result },
	}, "sh", "-c", "echo ready; cat")
	var err error
	in, err = c.StdinPipe()
	require.NoError(t, err)
	return c.Run()
}

// waitingScript returns a shell script that prints "ready", waits, and runs onTerm when it
// gets SIGTERM. It does not use a loop of short sleeps, because some versions of dash lose
// signals that arrive while they start a program.
func waitingScript(onTerm string) string {
	return "trap 'kill $!; " + onTerm + "' TERM; sleep 60 >/dev/null 2>&1 & echo ready; wait"
}

// terminate sends SIGTERM to the process.
func terminate(c anyCmd) error {
	switch c := c.(type) {
	case *exec.Cmd:
		return c.Process.Signal(syscall.SIGTERM)
	case *sandbox.Cmd:
		return c.Process.Signal(syscall.SIGTERM)
	}
	return errors.New("no command")
}

// TestCmdLikeOSExec runs the same programs with exec.Cmd and with Cmd.
func TestCmdLikeOSExec(t *testing.T) {
	t.Parallel()
	sb := shareIsolated(t, nil)
	_, err := sb.RunCommand(t.Context(), "mkdir", []string{"-p", "work"}, nil)
	require.NoError(t, err)
	dir := filepath.Join(t.TempDir(), "work")
	require.NoError(t, os.Mkdir(dir, 0o755))
	for name, program := range programs {
		t.Run(name, func(t *testing.T) {
			if slices.Contains(onlySlow, name) {
				needs.Long(t, "other programs cover its parts")
			}
			want := program(t, localCmd(dir))
			assert.Equal(t, want, program(t, remoteCmd(sb, "work")))
		})
	}
	left, err := sb.CommandContext(t.Context(), "sh", "-c", "ls -A /tmp | grep stdin").CombinedOutput()
	assert.Error(t, err, "no file with a standard input remains: %s", left)
}
