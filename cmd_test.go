package sandbox_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/auth"
	"github.com/go-vercel/sandbox/internal/needs"
	"github.com/go-vercel/sandbox/sandboxtest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// anyCmd is what exec.Cmd and sandbox.Cmd have in common.
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

// fields sets the fields of either.
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

// cmdOutcome is what is compared of a run.
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

func combined(c anyCmd) cmdOutcome {
	out, err := c.CombinedOutput()
	return cmdOutcomeOf(out, nil, err)
}

func run(c anyCmd) cmdOutcome { return cmdOutcomeOf(nil, nil, c.Run()) }

// programs are run on both.
var programs = map[string]func(t *testing.T, mk makeCmd) cmdOutcome{
	"nothing": func(t *testing.T, mk makeCmd) cmdOutcome { return run(mk(t.Context(), cmdFields{}, "true")) },
	"exit 1":  func(t *testing.T, mk makeCmd) cmdOutcome { return run(mk(t.Context(), cmdFields{}, "false")) },
	"exit 7 with both": func(t *testing.T, mk makeCmd) cmdOutcome {
		var stdout, stderr bytes.Buffer
		err := mk(t.Context(), cmdFields{stdout: &stdout, stderr: &stderr}, "sh", "-c", "echo out; echo err >&2; exit 7").Run()
		return cmdOutcomeOf(stdout.Bytes(), stderr.Bytes(), err)
	},
	"output": func(t *testing.T, mk makeCmd) cmdOutcome {
		return output(mk(t.Context(), cmdFields{}, "printf", "%s|", "a b", "", "$HOME", "ü\n"))
	},
	"output keeps stderr in the error": func(t *testing.T, mk makeCmd) cmdOutcome {
		return output(mk(t.Context(), cmdFields{}, "sh", "-c", "echo out; echo err >&2; exit 2"))
	},
	"long stderr is shortened": func(t *testing.T, mk makeCmd) cmdOutcome {
		return output(mk(t.Context(), cmdFields{}, "sh", "-c", "seq 1 30000 >&2; exit 2"))
	},
	"stderr that is collected is not in the error": func(t *testing.T, mk makeCmd) cmdOutcome {
		var stderr bytes.Buffer
		out, err := mk(t.Context(), cmdFields{stderr: &stderr}, "sh", "-c", "echo err >&2; exit 2").Output()
		return cmdOutcomeOf(out, stderr.Bytes(), err)
	},
	"combined output": func(t *testing.T, mk makeCmd) cmdOutcome {
		return combined(mk(t.Context(), cmdFields{}, "sh", "-c", "echo one; sleep .05; echo two >&2; sleep .05; echo three; exit 3"))
	},
	"no program": func(t *testing.T, mk makeCmd) cmdOutcome { return run(mk(t.Context(), cmdFields{}, "")) },
	"a program that is missing": func(t *testing.T, mk makeCmd) cmdOutcome {
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
	"stdin that is empty": func(t *testing.T, mk makeCmd) cmdOutcome {
		return output(mk(t.Context(), cmdFields{stdin: strings.NewReader("")}, "wc", "-c"))
	},
	"no stdin": func(t *testing.T, mk makeCmd) cmdOutcome { return output(mk(t.Context(), cmdFields{}, "wc", "-c")) },
	"stdin and an exit code": func(t *testing.T, mk makeCmd) cmdOutcome {
		return output(mk(t.Context(), cmdFields{stdin: strings.NewReader("5\n")}, "sh", "-c", `read n; exit "$n"`))
	},
	"stdin that nobody reads": func(t *testing.T, mk makeCmd) cmdOutcome {
		return output(mk(t.Context(), cmdFields{stdin: strings.NewReader(strings.Repeat("x", 1<<20))}, "echo", "done"))
	},
	"stdin that can't be read": func(t *testing.T, mk makeCmd) cmdOutcome {
		o := run(mk(t.Context(), cmdFields{stdin: io.MultiReader(strings.NewReader("a"), failingReader{})}, "cat"))
		o.err = "" // the text is ours
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
	"a writer that fails": func(t *testing.T, mk makeCmd) cmdOutcome {
		return run(mk(t.Context(), cmdFields{stdout: failingWriter{}}, "echo", "x"))
	},
	"a writer that fails of a command that fails": func(t *testing.T, mk makeCmd) cmdOutcome {
		return run(mk(t.Context(), cmdFields{stdout: failingWriter{}}, "sh", "-c", "echo x; exit 9"))
	},
	"context over before": func(t *testing.T, mk makeCmd) cmdOutcome {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		return run(mk(ctx, cmdFields{}, "true"))
	},
	"context with a Cancel that asks": func(t *testing.T, mk makeCmd) cmdOutcome {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var c anyCmd
		out := &notifyWriter{text: "ready", notify: cancel}
		c = mk(ctx, cmdFields{stdout: out, cancel: func() error { return ask(c) }}, "sh", "-c", waits("echo bye; exit 5"))
		return cmdOutcomeOf(nil, nil, c.Run())
	},
	"a Cancel after which the command succeeds": func(t *testing.T, mk makeCmd) cmdOutcome {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var c anyCmd
		c = mk(ctx, cmdFields{stdout: &notifyWriter{text: "ready", notify: cancel}, cancel: func() error { return ask(c) }},
			"sh", "-c", waits("exit 0"))
		return cmdOutcomeOf(nil, nil, c.Run())
	},
	"a Cancel that fails": func(t *testing.T, mk makeCmd) cmdOutcome {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		c := mk(ctx, cmdFields{stdout: &notifyWriter{text: "ready", notify: cancel}, cancel: func() error { return errOwn }},
			"sh", "-c", "echo ready; sleep .3")
		return cmdOutcomeOf(nil, nil, c.Run())
	},
	"a Cancel that finds the process done": func(t *testing.T, mk makeCmd) cmdOutcome {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		c := mk(ctx, cmdFields{stdout: &notifyWriter{text: "ready", notify: cancel}, cancel: func() error { return os.ErrProcessDone }},
			"sh", "-c", "echo ready; sleep .3")
		return cmdOutcomeOf(nil, nil, c.Run())
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

type failingReader struct{}

func (failingReader) Read([]byte) (int, error) { return 0, errOwn }

// notifyWriter calls notify once when it sees a text.
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

// waits is a shell script that says when it is ready, and what it does on
// SIGTERM. A loop of short sleeps would not do: some versions of dash lose
// signals that come while they start a program.
func waits(then string) string {
	return "trap 'kill $!; " + then + "' TERM; sleep 60 >/dev/null 2>&1 & echo ready; wait"
}

func ask(c anyCmd) error {
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
	_, sb := start(t, nil)
	_, err := sb.RunCommand(t.Context(), "mkdir", []string{"-p", "work"}, nil)
	require.NoError(t, err)
	dir := filepath.Join(t.TempDir(), "work")
	require.NoError(t, os.Mkdir(dir, 0o755))
	for name, program := range programs {
		t.Run(name, func(t *testing.T) {
			want := program(t, localCmd(dir))
			assert.Equal(t, want, program(t, remoteCmd(sb, "work")))
		})
	}
	left, err := sb.CommandContext(t.Context(), "sh", "-c", "ls -A /tmp | grep stdin").CombinedOutput()
	assert.Error(t, err, "no standard input is left: %s", left)
}

func TestCmdKill(t *testing.T) {
	_, sb := start(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c := sb.CommandContext(ctx, "sh", "-c", "echo ready; exec sleep 60")
	c.Stdout = &notifyWriter{text: "ready", notify: cancel}
	err := c.Run()
	e, ok := errors.AsType[*sandbox.ExitError](err)
	require.True(t, ok, "%v", err)
	assert.Equal(t, 128+9, e.ExitCode())
	assert.Equal(t, "exit status 137", e.Error())
	assert.Same(t, e.ProcessState, c.ProcessState)
	assert.True(t, c.ProcessState.Exited())
	assert.False(t, c.ProcessState.Success())
	assert.ErrorIs(t, c.Process.Kill(), os.ErrProcessDone)
	assert.ErrorIs(t, c.Process.Signal(nil), sandbox.ErrInvalid)

	c = sb.CommandContext(t.Context(), "sh", "-c", waits("exit 6"))
	out := &notifyWriter{text: "ready", notify: func() { assert.NoError(t, c.Process.Signal(syscall.SIGTERM)) }}
	c.Stdout = out
	assert.EqualError(t, c.Run(), "exit status 6")
	require.NotNil(t, c.Process.Command())
	assert.Equal(t, "sh", c.Process.Command().Name())

	var none *sandbox.ProcessState
	assert.Equal(t, -1, none.ExitCode())
	assert.Equal(t, "<nil>", none.String())
}

// Output that is not delivered within WaitDelay of the command's end is given up.
func TestCmdWaitDelayEndsCopying(t *testing.T) {
	_, sb := start(t, nil)
	c := sb.CommandContext(t.Context(), "sh", "-c", "yes x | head -c 1000000")
	c.Stdout = &notifyWriter{text: "x", notify: func() { time.Sleep(time.Second) }}
	c.WaitDelay = 200 * time.Millisecond
	assert.ErrorIs(t, c.Run(), exec.ErrWaitDelay)
	assert.True(t, c.ProcessState.Success())
}

// A command that does not heed Cancel is killed after WaitDelay.
func TestCmdWaitDelayKills(t *testing.T) {
	_, sb := start(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c := sb.CommandContext(ctx, "sh", "-c", "trap '' INT; echo ready; while :; do sleep .02; done")
	c.Stdout = &notifyWriter{text: "ready", notify: cancel}
	c.Cancel = func() error { return c.Process.Signal(os.Interrupt) }
	c.WaitDelay = 200 * time.Millisecond
	assert.EqualError(t, c.Run(), "exit status 137")
}

// Standard input is in no argument, in no log, and in no file afterwards.
func TestCmdStdinIsHidden(t *testing.T) {
	const secret = "hunter2 of the input"
	srv, sb := start(t, nil)
	c := sb.CommandContext(t.Context(), "sh", "-c", `cat; ls -A /tmp; ls -l /proc/self/fd/0`)
	c.Stdin = strings.NewReader(secret + "\n")
	out, err := c.Output()
	require.NoError(t, err)
	assert.Contains(t, string(out), secret)
	assert.NotRegexp(t, `(?m)^\.stdin`, string(out), "the file is gone while the command runs")
	for _, cmd := range must(sb.ListCommands(t.Context())) {
		assert.NotContains(t, strings.Join(cmd.Args(), " "), "hunter2")
	}
	for _, r := range srv.Requests() {
		assert.NotContains(t, string(r.Body), "hunter2")
	}

	// The file does not stay when the start is refused.
	c = sb.CommandContext(t.Context(), "cat")
	c.Dir, c.Stdin = "/no/such/directory", strings.NewReader(secret)
	require.Error(t, c.Run())
	left, err := sb.CommandContext(t.Context(), "sh", "-c", "ls -A /tmp; grep -rl 'hunter2' /tmp || true").Output()
	require.NoError(t, err)
	assert.NotContains(t, string(left), "stdin")
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func TestCmdOfUserAndSession(t *testing.T) {
	_, sb := start(t, nil)
	needs.Users(t, sb)
	alice, err := sb.CreateUser(t.Context(), "alice")
	require.NoError(t, err)
	c := alice.CommandContext(t.Context(), "sh", "-c", `id -un; pwd; cat; ls -A /tmp | grep stdin`)
	c.Stdin = strings.NewReader("in\n")
	out, err := c.Output()
	assert.EqualError(t, err, "exit status 1", "no input is left")
	assert.Equal(t, "alice\n"+alice.HomeDir()+"\nin\n", string(out))

	session := sb.CurrentSession()
	c = session.CommandContext(t.Context(), "cat")
	c.Stdin = strings.NewReader("in\n")
	out, err = c.Output()
	require.NoError(t, err)
	assert.Equal(t, "in\n", string(out))
	_, err = sb.Stop(t.Context())
	require.NoError(t, err)
	c = session.CommandContext(t.Context(), "cat")
	c.Stdin = strings.NewReader("in\n")
	assert.ErrorIs(t, c.Run(), sandbox.ErrStopped)
	c = sb.CommandContext(t.Context(), "cat")
	c.Stdin = strings.NewReader("resumed\n")
	out, err = c.Output()
	require.NoError(t, err)
	assert.Equal(t, "resumed\n", string(out))
}

// Output comes once and whole although the connection is cut again and again.
func TestCmdSurvivesCuts(t *testing.T) {
	srv, sb := start(t, nil)
	srv.Inject(sandboxtest.Fault{Operation: sandboxtest.CommandLogs, CutAfterBytes: 3000, Times: 4})
	srv.Inject(sandboxtest.Fault{Operation: sandboxtest.CommandLogs, Status: http.StatusBadGateway, Times: 2})
	srv.Inject(sandboxtest.Fault{Operation: sandboxtest.GetCommand, Status: http.StatusServiceUnavailable, Times: 1})
	var want strings.Builder
	for i := range 2000 {
		fmt.Fprintf(&want, "ligne n° %d\n", i+1)
	}
	out, err := sb.CommandContext(t.Context(), "sh", "-c", "seq -f 'ligne n° %.0f' 1 2000; exit 4").Output()
	assert.EqualError(t, err, "exit status 4")
	assert.True(t, want.String() == string(out), "%d bytes instead of %d", len(out), want.Len())
	assert.Equal(t, 1, count(srv, sandboxtest.RunCommand))
}

// A cancelled command whose end the API does not tell is given up.
func TestCmdIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sb sandbox.Sandbox
		require.NoError(t, sb.UnmarshalJSON([]byte(`{"metadata":{"id":"sess_1","status":"running","cwd":"/"},"sandboxMetadata":{"name":"a"},"routes":[]}`)))
		kills := 0
		client, err := sandbox.NewClient(&sandbox.ClientOptions{
			BaseURL: "https://api.example.com", Credentials: auth.Static(auth.Credentials{Token: "t", TeamID: "m", ProjectID: "p"}),
			HTTPClient: &http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
				switch {
				case strings.HasSuffix(r.URL.Path, "/kill"):
					kills++
				case r.Method == http.MethodGet:
					<-r.Context().Done() // it never ends
					return nil, r.Context().Err()
				}
				return answer(200, `{"command":{"id":"cmd_1","name":"sleep","args":[],"cwd":"/","sessionId":"sess_1","exitCode":null}}`)
			})},
		})
		require.NoError(t, err)
		sb.SetClient(client)
		for _, stdout := range []io.Writer{nil, io.Discard} {
			kills = 0
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			c := sb.CommandContext(ctx, "sleep", "infinity")
			c.Stdout = stdout
			began := time.Now()
			assert.ErrorIs(t, c.Run(), context.DeadlineExceeded)
			assert.Equal(t, 100*time.Second, time.Since(began), "the deadline, thirty seconds, and ten after another kill")
			assert.Equal(t, 2, kills)
			assert.Nil(t, c.ProcessState)
		}
	})
}

// A command whose input never ends is not begun, and Kill or the context end it.
func TestCmdStdinThatDoesNotEnd(t *testing.T) {
	srv, sb := start(t, nil)
	r, w := io.Pipe()
	defer w.Close()
	ctx, cancel := context.WithCancel(t.Context())
	c := sb.CommandContext(ctx, "cat")
	c.Stdin = r
	require.NoError(t, c.Start())
	assert.Nil(t, c.Process.Command())
	cancel()
	assert.ErrorIs(t, c.Wait(), context.Canceled)
	assert.Nil(t, c.ProcessState)

	c = sb.CommandContext(t.Context(), "cat")
	in, err := c.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, c.Start())
	require.NoError(t, c.Process.Kill())
	assert.ErrorContains(t, c.Wait(), "killed before its standard input came to an end")
	_, err = in.Write([]byte("x"))
	assert.ErrorIs(t, err, io.ErrClosedPipe)
	assert.Zero(t, count(srv, sandboxtest.RunCommand))
}

func TestCmdShowsNoEnvironment(t *testing.T) {
	_, sb := start(t, nil)
	c := sb.CommandContext(t.Context(), "env", "-0")
	c.Env = []string{"KEY=hunter2"}
	assert.Equal(t, "env -0", c.String())
	var shown bytes.Buffer
	slog.New(slog.NewTextHandler(&shown, nil)).Info("x", "cmd", c)
	for _, verb := range []string{"%v", "%+v", "%#v", "%s"} {
		fmt.Fprintf(&shown, verb, c)
	}
	assert.NotContains(t, shown.String(), "hunter2")
	assert.NotContains(t, shown.String(), "hun")

	c.Env = []string{"hunter2"}
	err := c.Run()
	assert.ErrorIs(t, err, sandbox.ErrInvalid)
	assert.NotContains(t, err.Error(), "hunter2")

	c = sb.CommandContext(t.Context(), "env")
	c.Dir = "sub"
	assert.Equal(t, []string{"PWD=" + sb.Cwd() + "/sub"}, c.Environ())
	c.Env = []string{"A=1", "B=2", "A=3"}
	assert.Equal(t, []string{"B=2", "A=3"}, c.Environ())
}
