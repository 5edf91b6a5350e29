package client_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/auth"
	"github.com/go-vercel/sandbox/internal/test/canned"
	"github.com/go-vercel/sandbox/internal/test/needs"
	"github.com/go-vercel/sandbox/internal/test/testkit"
	"github.com/go-vercel/sandbox/sandboxtest"
)

func TestCmdKill(t *testing.T) {
	t.Parallel()
	sb := share(t, nil)
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

	c = sb.CommandContext(t.Context(), "sh", "-c", waitingScript("exit 6"))
	out := &notifyWriter{text: "ready", notify: func() { assert.NoError(t, c.Process.Signal(syscall.SIGTERM)) }}
	c.Stdout = out
	assert.EqualError(t, c.Run(), "exit status 6")
	require.NotNil(t, c.Process.Command())
	assert.Equal(t, "sh", c.Process.Command().Name())

	var none *sandbox.ProcessState
	assert.Equal(t, -1, none.ExitCode())
	assert.Equal(t, "<nil>", none.String())
}

// Wait stops waiting for output that does not arrive within WaitDelay of the command's
// end.
func TestCmdWaitDelayEndsCopying(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		success := strings.Replace(canned.Ended, `"exitCode":3`, `"exitCode":0`, 1)
		sb := canned.API(func(req *http.Request) (*http.Response, error) {
			if testkit.IsRun(req) {
				return canned.Response(200, "application/x-ndjson", strings.NewReader(canned.Begun+strings.Repeat(`{"stream":"stdout","data":"one\n"}`+"\n", 1000)+success)), nil
			}
			return canned.JSON(200, success), nil
		}).Sandbox(t)
		c := sb.CommandContext(t.Context(), "x")
		c.Stdout = &notifyWriter{text: "one", notify: func() { time.Sleep(time.Second) }}
		c.WaitDelay = 200 * time.Millisecond
		assert.ErrorIs(t, c.Run(), exec.ErrWaitDelay)
		assert.True(t, c.ProcessState.Success())
	})
}

// A command that ignores Cancel is killed after WaitDelay.
func TestCmdWaitDelayKills(t *testing.T) {
	t.Parallel()
	sb := share(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c := sb.CommandContext(ctx, "sh", "-c", "trap '' INT; echo ready; while :; do sleep .1; done")
	c.Stdout = &notifyWriter{text: "ready", notify: cancel}
	c.Cancel = func() error { return c.Process.Signal(os.Interrupt) }
	c.WaitDelay = 200 * time.Millisecond
	assert.EqualError(t, c.Run(), "exit status 137")
}

// Standard input appears in no argument and no log, and its file is removed.
func TestCmdStdinIsHidden(t *testing.T) {
	t.Parallel()
	const secret = "hunter2 of the input"
	srv, sb := testkit.Start(t, nil)
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

	// The file is removed if the start is refused.
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

func TestCmdOfUser(t *testing.T) {
	t.Parallel()
	needs.Long(t, "TestCmdStdinKeepsTheEnvironment also runs a command of a user")
	sb := shareIsolated(t, nil)
	testkit.NeedUsers(t, sb)
	alice, err := sb.CreateUser(t.Context(), "alice")
	require.NoError(t, err)
	c := alice.CommandContext(t.Context(), "sh", "-c", `id -un; pwd; cat; ls -A /tmp | grep stdin`)
	c.Stdin = strings.NewReader("in\n")
	out, err := c.Output()
	assert.EqualError(t, err, "exit status 1", "no file with the input remains")
	assert.Equal(t, "alice\n"+alice.HomeDir()+"\nin\n", string(out))
}

func TestCmdOfSession(t *testing.T) {
	t.Parallel()
	sb := share(t, nil)
	session := sb.CurrentSession()
	c := session.CommandContext(t.Context(), "cat")
	c.Stdin = strings.NewReader("in\n")
	out, err := c.Output()
	require.NoError(t, err)
	assert.Equal(t, "in\n", string(out))
	_, err = sb.Stop(t.Context(), nil)
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

// Output is delivered once and completely, even if the connection breaks repeatedly.
func TestCmdSurvivesCuts(t *testing.T) {
	t.Parallel()
	needs.GNU(t)
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
	assert.Equal(t, 1, testkit.Count(srv, sandboxtest.RunCommand))
}

// Wait gives up if the API does not report that a canceled command has ended.
func TestCmdGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sb sandbox.Sandbox
		require.NoError(t, sb.UnmarshalJSON([]byte(`{"metadata":{"id":"sess_1","status":"running","cwd":"/"},"sandboxMetadata":{"name":"a"},"routes":[]}`)))
		var kills []string
		started, silent := false, false
		client, err := sandbox.NewClient(&sandbox.ClientOptions{
			ServerCommandIDs: true, BaseURL: "https://api.example.com", Credentials: auth.Static(auth.Credentials{Token: "t", TeamID: "m", ProjectID: "p"}),
			HTTPClient: &http.Client{Transport: canned.RoundTripper(func(r *http.Request) (*http.Response, error) {
				const command = `{"command":{"id":"cmd_1","name":"sleep","args":[],"cwd":"/","sessionId":"sess_1","exitCode":null}}`
				switch {
				case strings.HasSuffix(r.URL.Path, "/kill"):
					body, err := io.ReadAll(r.Body)
					assert.NoError(t, err)
					kills = append(kills, string(body))
					if silent {
						<-r.Context().Done()
						return nil, r.Context().Err()
					}
				case r.Method == http.MethodGet:
					<-r.Context().Done() // the command never ends
					return nil, r.Context().Err()
				case started: // the second start is the script that kills the command's children
					kills = append(kills, "script")
					if silent {
						<-r.Context().Done()
						return nil, r.Context().Err()
					}
					resp, err := respond(200, command+"\n"+strings.Replace(command, "null", "0", 1)+"\n")
					resp.Header.Set("Content-Type", "application/x-ndjson")
					return resp, err
				default:
					started = true
					resp, err := respond(200, command)
					resp.Header.Set("Content-Type", "application/x-ndjson")
					body := &endlessBody{first: strings.NewReader(command + "\n"), done: r.Context().Done()}
					resp.Body = body
					return resp, err
				}
				return respond(200, command)
			})},
		})
		require.NoError(t, err)
		client.Bind(&sb)
		for _, stdout := range []io.Writer{nil, io.Discard} {
			for _, silent = range []bool{false, true} {
				kills, started = nil, false
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				c := sb.CommandContext(ctx, "sleep", "infinity")
				c.Stdout = stdout
				began := time.Now()
				assert.ErrorIs(t, c.Run(), context.DeadlineExceeded)
				assert.Nil(t, c.ProcessState)
				if silent {
					assert.Equal(t, 64500*time.Millisecond, time.Since(began), "a minute until the deadline, four seconds for the script, and half a second for the kill")
					assert.Equal(t, []string{"script", `{"signal":9}`}, kills)
					continue
				}
				assert.Equal(t, 95*time.Second, time.Since(began), "a minute until the deadline, 30 seconds until the second kill, and five seconds after it")
				assert.Equal(t, []string{"script", "script"}, kills, "killed twice")
			}
		}
	})
}

// endlessBody is the start of a stream that then stays silent.
type endlessBody struct {
	first io.Reader
	done  <-chan struct{}
}

func (b *endlessBody) Read(p []byte) (int, error) {
	if n, err := b.first.Read(p); err == nil {
		return n, nil
	}
	<-b.done
	return 0, context.Canceled
}

func (b *endlessBody) Close() error { return nil }

// A program can be used interactively, as with os/exec.
func TestCmdConversation(t *testing.T) {
	t.Parallel()
	sb := share(t, nil)
	for name, mk := range map[string]makeCmd{"os/exec": localCmd(t.TempDir()), "sandbox": remoteCmd(sb, ".")} {
		c := mk(t.Context(), cmdFields{}, "sh", "-c", `while read -r a b; do echo $((a+b)); done; exit 4`)
		in, err := c.StdinPipe()
		require.NoError(t, err)
		stdout, err := c.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, c.Start())
		out := bufio.NewReader(stdout)
		for i := range 5 {
			fmt.Fprintln(in, i, 2*i)
			line, err := out.ReadString('\n')
			require.NoError(t, err)
			assert.Equal(t, fmt.Sprintln(3*i), line, name)
		}
		require.NoError(t, in.Close())
		_, err = out.ReadString('\n')
		assert.Equal(t, io.EOF, err)
		assert.EqualError(t, c.Wait(), "exit status 4", name)
	}
}

// If nothing reads the output anymore, the program gets SIGPIPE. Wait returns even if the
// program ignores that signal.
func TestCmdReaderGoesAway(t *testing.T) {
	t.Parallel()
	sb := share(t, nil)
	for name, c := range map[string]struct {
		program []string
		pipe    bool
		code    int
	}{
		"pipe":           {[]string{"yes"}, true, 128 + 13},
		"writer":         {[]string{"yes"}, false, 128 + 13},
		"ignored":        {[]string{"sh", "-c", "trap '' PIPE; while :; do echo y; sleep .1; done"}, true, 128 + 15},
		"ignored always": {[]string{"sh", "-c", "trap '' PIPE TERM; while :; do echo y; sleep .1; done"}, false, 128 + 9},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if name == "writer" || name == "ignored always" {
				needs.Long(t, "the other rows end in the same ways")
			}
			cmd := sb.CommandContext(t.Context(), c.program[0], c.program[1:]...)
			var err error
			if c.pipe {
				stdout, pipeErr := cmd.StdoutPipe()
				require.NoError(t, pipeErr)
				require.NoError(t, cmd.Start())
				_, err = io.ReadFull(stdout, make([]byte, 10))
				require.NoError(t, err)
				require.NoError(t, stdout.Close())
				err = cmd.Wait()
			} else {
				cmd.Stdout = failingWriter{}
				err = cmd.Run()
			}
			e, ok := errors.AsType[*sandbox.ExitError](err)
			require.True(t, ok, "%v", err)
			assert.Equal(t, c.code, e.ExitCode())
		})
	}
}

// A Cmd costs one request for the start, the output and the end.
func TestCmdCosts(t *testing.T) {
	t.Parallel()
	srv, sb := start(t, nil)
	for name, c := range map[string]struct {
		cost int
		run  func(c *sandbox.Cmd) error
	}{
		"Run":            {1, func(c *sandbox.Cmd) error { return c.Run() }},
		"Output":         {1, func(c *sandbox.Cmd) error { _, err := c.Output(); return err }},
		"CombinedOutput": {1, func(c *sandbox.Cmd) error { _, err := c.CombinedOutput(); return err }},
		"Start and Wait": {1, func(c *sandbox.Cmd) error { c.Stdout = io.Discard; return errors.Join(c.Start(), c.Wait()) }},
		"no output":      {2, func(c *sandbox.Cmd) error { return errors.Join(c.Start(), c.Wait()) }},
		"StdoutPipe": {1, func(c *sandbox.Cmd) error {
			p, err := c.StdoutPipe()
			if err == nil {
				err = c.Start()
			}
			_, readErr := io.ReadAll(p)
			return errors.Join(err, readErr, c.Wait())
		}},
		"Stdin of known length": {3, func(c *sandbox.Cmd) error { c.Stdin = strings.NewReader("x"); return c.Run() }},
		"Stdin that is copied":  {3, func(c *sandbox.Cmd) error { c.Stdin = oneByte{strings.NewReader("x")}; return c.Run() }},
	} {
		before := len(srv.Requests())
		require.NoError(t, c.run(sb.CommandContext(t.Context(), "cat")), name)
		assert.Equal(t, c.cost, len(srv.Requests())-before, name)
	}
}

// Files that report no length, or a wrong one, are read to the end.
func TestCmdStdinOfOddFiles(t *testing.T) {
	t.Parallel()
	needs.GNU(t)
	sb := share(t, nil)
	for _, name := range []string{"/dev/zero", "/sys/kernel/mm/transparent_hugepage/enabled", "/proc/version"} {
		if _, err := os.Stat(name); err != nil {
			continue // this machine does not have the file
		}
		file, err := os.Open(name)
		require.NoError(t, err)
		c := sb.CommandContext(t.Context(), "head", "-c", "200")
		c.Stdin = file
		got, err := c.Output()
		require.NoError(t, err, name)
		require.NoError(t, file.Close())
		file, err = os.Open(name)
		require.NoError(t, err)
		want, err := io.ReadAll(io.LimitReader(file, 200))
		require.NoError(t, err)
		require.NotEmpty(t, want)
		require.NoError(t, file.Close())
		assert.Equal(t, string(want), string(got), name)
	}
}

// If the API does not respond, calls return within the documented time after the end of
// their context.
func TestCmdEndsWithItsContext(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		bound  time.Duration
		silent func(path string) bool
		run    func(c *sandbox.Cmd) error
	}{
		"Start":            {5 * time.Second, always, func(c *sandbox.Cmd) error { return c.Start() }},
		"Start with Stdin": {5 * time.Second, always, func(c *sandbox.Cmd) error { c.Stdin = strings.NewReader("x"); return c.Start() }},
		"Run with a pipe":  {5 * time.Second, always, func(c *sandbox.Cmd) error { c.Stdin = oneByte{strings.NewReader("x")}; return c.Run() }},
		"Run that is not killed": {6 * time.Second, func(path string) bool { return !strings.HasSuffix(path, "/cmd") }, func(c *sandbox.Cmd) error {
			return c.Run()
		}},
		"Run whose input is not taken": {6 * time.Second, func(path string) bool { return !strings.HasSuffix(path, "/cmd") }, func(c *sandbox.Cmd) error {
			r, w := io.Pipe()
			defer w.Close()
			c.Stdin = r
			go io.WriteString(w, "x")
			return c.Run()
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sb := canned.API(func(req *http.Request) (*http.Response, error) {
					if c.silent(req.URL.Path) {
						return canned.Unanswered(req)
					}
					return canned.Forgotten(req, canned.Begun)
				}).Sandbox(t)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				var ended time.Time
				time.AfterFunc(200*time.Millisecond, func() { ended = time.Now(); cancel() })
				err := c.run(sb.CommandContext(ctx, "sleep", "1000"))
				require.ErrorIs(t, err, context.Canceled)
				assert.LessOrEqual(t, time.Since(ended), c.bound, "%v", err)
			})
		})
	}
}

func always(string) bool { return true }

// The client stores the input in a file. The programs that open and remove this file are
// found even if the command's PATH does not contain them.
func TestCmdStdinWithAnotherPath(t *testing.T) {
	t.Parallel()
	sb := shareIsolated(t, nil)
	c := sb.CommandContext(t.Context(), "/bin/cat")
	c.Env, c.Stdin = []string{"PATH=/no/such/directory"}, strings.NewReader("text")
	got, err := c.Output()
	require.NoError(t, err)
	assert.Equal(t, "text", string(got))
	assert.NotContains(t, testkit.Output(t, sb, "ls", "-A", "/tmp"), "stdin")
}

// If Stdin is a pipe of this process, its data is copied while the command runs. Start
// does not read it to its end first.
func TestCmdStdinOfAPipe(t *testing.T) {
	t.Parallel()
	sb := share(t, nil)
	r, w, err := os.Pipe()
	require.NoError(t, err)
	defer r.Close()
	c := sb.CommandContext(t.Context(), "cat")
	c.Stdin = r
	out, err := c.StdoutPipe()
	require.NoError(t, err)
	started := make(chan error, 1)
	go func() { started <- c.Start() }()
	select {
	case err := <-started:
		require.NoError(t, err)
	case <-time.After(time.Minute):
		w.Close()
		t.Fatal("Start waited for the end of the input")
	}
	_, err = io.WriteString(w, "one\n")
	require.NoError(t, err)
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	assert.Equal(t, "one\n", line)
	require.NoError(t, w.Close())
	require.NoError(t, c.Wait())
}

// If a Read of Stdin does not return, Wait gives up after WaitDelay. (os/exec closes the
// pipes and continues to wait.)
func TestCmdStdinThatBlocks(t *testing.T) {
	t.Parallel()
	sb := share(t, nil)
	r, w := io.Pipe()
	defer w.Close()
	c := sb.CommandContext(t.Context(), "true")
	c.Stdin, c.WaitDelay = r, 200*time.Millisecond
	assert.ErrorIs(t, c.Run(), exec.ErrWaitDelay)
}

// Every call that starts a command reports a missing program or directory with errors
// that match those of package os.
func TestStartErrors(t *testing.T) {
	t.Parallel()
	sb := share(t, nil)
	_, err := sb.RunCommand(t.Context(), "no-such-program", nil, nil)
	assert.ErrorIs(t, err, exec.ErrNotFound)
	assert.NotErrorIs(t, err, sandbox.ErrNotFound)
	_, err = sb.StartCommand(t.Context(), "no-such-program", nil, nil)
	assert.ErrorIs(t, err, exec.ErrNotFound)
	_, err = sb.RunCommand(t.Context(), "true", nil, &sandbox.CommandOptions{Cwd: "/no/such/dir"})
	assert.ErrorIs(t, err, fs.ErrNotExist)
	assert.NotErrorIs(t, err, exec.ErrNotFound)
	c := sb.CommandContext(t.Context(), "true")
	c.Dir = "/no/such/dir"
	err = c.Run()
	assert.ErrorIs(t, err, fs.ErrNotExist)
	assert.ErrorContains(t, err, "/no/such/dir")

	// As with package exec, a Cmd that did not start has no process to wait for.
	c = sb.CommandContext(t.Context(), "no-such-program")
	assert.ErrorIs(t, c.Start(), exec.ErrNotFound)
	assert.Nil(t, c.Process)
	assert.ErrorContains(t, c.Wait(), "not started")
	c = sb.CommandContext(t.Context(), "")
	assert.ErrorContains(t, c.Start(), "no command")
}

// TestErrorsShowTheClientsVariables: an error that quotes the request shows the values of
// the variables that the client itself has set, but no value of the caller's variables.
func TestErrorsShowTheClientsVariables(t *testing.T) {
	t.Parallel()
	for name, env := range map[string][]string{"none": nil, "the caller's": {"SECRET=correct-horse"}} {
		if env == nil && !needs.Slow() {
			continue
		}
		_, gate, sb, _ := behind(t, sandbox.ClientOptions{}, nil)
		sent := map[string]string{}
		gate.Set(func(req *http.Request, next http.RoundTripper) (*http.Response, error) {
			if !testkit.IsRun(req) {
				return next.RoundTrip(req)
			}
			var body struct{ Env map[string]string }
			assert.NoError(t, json.NewDecoder(req.Body).Decode(&body))
			req.Body.Close()
			sent = body.Env
			quoted, err := json.Marshal(fmt.Sprint(sent))
			return canned.JSON(400, `{"error":{"code":"bad_request","message":`+string(quoted)+`}}`), err
		})
		c := sb.CommandContext(t.Context(), "true")
		c.Dir, c.Env = "missing-directory", env
		err := c.Run()
		require.Error(t, err)
		require.NotEmpty(t, sent)
		for variable, value := range sent {
			if variable == "SECRET" {
				assert.NotContains(t, err.Error(), value)
			} else {
				assert.ErrorContains(t, err, value, "%s: %s", name, variable)
			}
		}
	}
}

func TestCmdShowsNoEnvironment(t *testing.T) {
	t.Parallel()
	sb := share(t, nil)
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
