//go:build linux

package terminal_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/internal/test/needs"
	"github.com/go-vercel/sandbox/internal/test/testkit"
	"github.com/go-vercel/sandbox/terminal"
)

// screen is a terminal with a user who watches it.
type screen struct {
	*terminal.Shell
	t       *testing.T
	mu      sync.Mutex
	text    bytes.Buffer
	more    chan struct{} // receives a value after each write
	readErr chan error    // receives the result of reading
}

func openScreen(t *testing.T, sb *sandbox.Sandbox, opts *terminal.ShellOptions) *screen {
	t.Helper()
	sh, err := terminal.Open(t.Context(), sb, opts)
	require.NoError(t, err)
	return watchShell(t, sh)
}

func watchShell(t *testing.T, sh *terminal.Shell) *screen {
	s := &screen{Shell: sh, t: t, more: make(chan struct{}, 1), readErr: make(chan error, 1)}
	watching := make(chan struct{})
	go func() {
		defer close(watching)
		_, err := io.Copy(s, sh)
		s.readErr <- err
	}()
	t.Cleanup(func() {
		assert.NoError(t, sh.Close())
		<-watching
	})
	return s
}

// Write shows the program's output. Type sends input.
func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.text.Write(p)
	select {
	case s.more <- struct{}{}:
	default:
	}
	return len(p), nil
}

func (s *screen) Type(text string) {
	s.t.Helper()
	_, err := io.WriteString(s.Shell, text)
	require.NoError(s.t, err)
}

// until waits until the screen shows new text that contains the argument, and
// returns everything up to it.
func (s *screen) until(text string) string {
	s.t.Helper()
	for deadline := time.After(testkit.Patience); ; {
		s.mu.Lock()
		shown := s.text.String()
		at := strings.Index(shown, text)
		if at >= 0 {
			s.text.Next(at + len(text))
			s.mu.Unlock()
			return shown[:at+len(text)]
		}
		s.mu.Unlock()
		select {
		case <-s.more:
		case <-deadline:
			require.Failf(s.t, "the text did not appear", "want %q, have %q", text, shown)
		}
	}
}

// exit waits for the end of the program and returns its exit code.
func (s *screen) exit() int {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), testkit.Patience)
	defer cancel()
	code, err := s.Wait(ctx)
	require.NoError(s.t, err)
	require.NoError(s.t, <-s.readErr, "reading ends with io.EOF")
	return code
}

// bash returns the options of a shell with a known prompt.
func bash() *terminal.ShellOptions {
	return &terminal.ShellOptions{
		Command: "bash", Args: []string{"--norc", "--noprofile"}, Env: sandbox.Env{"PS1": "ready> "},
	}
}

// TestShell: a prompt appears, typed commands run, the size changes, Ctrl-C
// stops a sleep, and the exit code is returned.
func TestShell(t *testing.T) {
	t.Parallel()
	_, sb := testkit.LightStart(t, nil)
	o := bash()
	o.Cols, o.Rows = 100, 30
	x := openScreen(t, sb, o)
	x.until("ready> ")
	x.Type("stty size; pwd; echo $TERM\n")
	x.until("30 100\r\n")
	x.until("/vercel\r\n")
	x.until("xterm-256color\r\n")
	x.until("ready> ")

	require.NoError(t, x.Resize(132, 43))
	x.Type("stty size\n")
	x.until("43 132\r\n")
	x.until("ready> ")

	x.Type("sh -c 'echo going to sleep; exec sleep 1000'\n")
	x.until("going to sleep\r\n")
	x.Type("\x03")
	x.until("ready> ")
	x.Type("echo after $?\n")
	x.until("after 130\r\n")

	x.Type("exit 7\n")
	assert.Equal(t, 7, x.exit())
	_, err := x.Shell.Write([]byte("x"))
	require.ErrorIs(t, err, io.ErrClosedPipe)
	require.ErrorIs(t, x.Resize(80, 24), io.ErrClosedPipe)
	_, err = x.Wait(nil) //nolint:staticcheck // the tested mistake
	require.ErrorIs(t, err, sandbox.ErrInvalid)
	code, err := x.Wait(t.Context())
	require.NoError(t, err)
	assert.Equal(t, 7, code)
}

// TestShellOptions: the login shell, arguments, directory, environment, sudo.
func TestShellOptions(t *testing.T) {
	t.Parallel()
	_, sb := testkit.Start(t, &sandbox.CreateOptions{Env: sandbox.Env{"FROM": "sandbox"}})
	require.NoError(t, sb.FS().Mkdir(t.Context(), "/vercel/sub dir", 0o777))

	x := openScreen(t, sb, nil)
	x.Type("shopt -q login_shell && echo \"a login\" shell; stty size; exit\n")
	x.until("a login shell\r\n")
	x.until("24 80\r\n")
	assert.Equal(t, 0, x.exit())

	program := `printf '%s|' "$@" "$FROM" "$WITH" "$TERM" "$PWD" "$(id -un)"`
	x = openScreen(t, sb, &terminal.ShellOptions{
		Command: "sh", Args: []string{"-c", program, "sh", "a b", ""},
		Env: sandbox.Env{"WITH": "an = and, a comma", "TERM": "vt100"}, Cwd: "/vercel/sub dir",
	})
	dir, err := sb.FS().RealPath(t.Context(), "/vercel/sub dir") // in folder mode its path on this machine
	require.NoError(t, err)
	user := strings.TrimSpace(testkit.Output(t, sb, "id", "-un"))
	x.until("a b||sandbox|an = and, a comma|vt100|" + dir + "|" + user + "|")
	assert.Equal(t, 0, x.exit())

	testkit.NeedUsers(t, sb)
	x = openScreen(t, sb, &terminal.ShellOptions{
		Command: "sh", Args: []string{"-c", program, "sh", "-x"}, Sudo: true,
		Env: sandbox.Env{"WITH": "secret of root"}, Cwd: "/vercel/sub dir",
	})
	x.until("-x||secret of root|xterm-256color|/vercel/sub dir|root|")
	assert.Equal(t, 0, x.exit())

	x = openScreen(t, sb, &terminal.ShellOptions{Sudo: true})
	x.Type("id -un; exit 3\n")
	x.until("root\r\nlogout")
	assert.Equal(t, 3, x.exit())

	for name, o := range map[string]*terminal.ShellOptions{
		"args":   {Args: []string{"-x"}},
		"nul":    {Command: "a\x00b"},
		"env":    {Env: sandbox.Env{"A=B": "secret"}},
		"comma":  {Env: sandbox.Env{"A,B": "secret"}, Sudo: true},
		"size":   {Cols: -1},
		"higher": {Rows: 65536},
	} {
		_, err := terminal.Open(t.Context(), sb, o)
		require.ErrorIs(t, err, sandbox.ErrInvalid, name)
		assert.NotContains(t, err.Error(), "secret")
	}
}

// TestShellEditors: full-screen programs open and quit.
func TestShellEditors(t *testing.T) {
	t.Parallel()
	needs.GNU(t)
	_, sb := testkit.LightStart(t, nil)
	var lines strings.Builder
	for i := range 500 {
		fmt.Fprintf(&lines, "line %d\n", i+1)
	}
	require.NoError(t, sb.WriteFiles(t.Context(), []sandbox.File{{Path: "long.txt", Content: []byte(lines.String())}}, nil))

	t.Run("less", func(t *testing.T) {
		needs.Programs(t, "less")
		x := openScreen(t, sb, &terminal.ShellOptions{Command: "less", Args: []string{"long.txt"}, Env: sandbox.Env{"LESS": ""}})
		x.until("line 23")
		x.Type("G")
		x.until("line 500")
		x.Type("q")
		assert.Equal(t, 0, x.exit())
	})
	t.Run("vim", func(t *testing.T) {
		vim := ""
		for _, name := range []string{"vim", "vim.tiny", "vi"} {
			if _, err := exec.LookPath(name); err == nil {
				vim = name
				break
			}
		}
		if vim == "" {
			needs.Missing(t, "vim in PATH")
		}
		x := openScreen(t, sb, &terminal.ShellOptions{Command: vim, Args: []string{"-u", "NONE", "long.txt"}})
		x.until("line 23")
		x.Type("G")
		x.until("500") // line 500, of which only this part is new
		x.Type("oadded by hand\x1b:wq\r")
		assert.Equal(t, 0, x.exit())
		done, err := sb.RunCommand(t.Context(), "tail", []string{"-1", "long.txt"}, nil)
		require.NoError(t, err)
		out, err := done.Stdout(t.Context())
		require.NoError(t, err)
		assert.Equal(t, "added by hand\n", out)
	})
}

// TestShellOutputWhole: Read returns all output of a program that ends.
func TestShellOutputWhole(t *testing.T) {
	t.Parallel()
	_, sb := testkit.LightStart(t, nil)
	sh, err := terminal.Open(t.Context(), sb, &terminal.ShellOptions{
		Command: "sh", Args: []string{"-c", "stty -opost; seq 100000; exit 5"},
	})
	require.NoError(t, err)
	defer sh.Close()
	all, err := io.ReadAll(sh)
	require.NoError(t, err)
	got := strings.Fields(string(all))
	require.Len(t, got, 100000)
	assert.Equal(t, "100000", got[len(got)-1])
	code, err := sh.Wait(t.Context())
	require.NoError(t, err)
	assert.Equal(t, 5, code)
}

// TestShellEnds: the end of the context and Close close the terminal, the program receives
// SIGHUP, and the error shows the cause.
func TestShellEnds(t *testing.T) {
	t.Parallel()
	_, sb := testkit.LightStart(t, nil)
	waitUntilEnded := func(mark string) {
		t.Helper()
		require.Eventually(t, func() bool {
			done, err := sb.RunCommand(t.Context(), "pgrep", []string{"-f", "sleep " + mark + "$"}, nil)
			return err == nil && done.ExitCode == 1
		}, testkit.Patience, 20*time.Millisecond, "the program has ended")
	}
	openSleep := func(ctx context.Context, mark string) *screen {
		sh, err := terminal.Open(ctx, sb, &terminal.ShellOptions{Command: "sh", Args: []string{"-c", "echo up; exec sleep " + mark}})
		require.NoError(t, err)
		x := watchShell(t, sh)
		x.until("up")
		return x
	}
	t.Run("context", func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		x := openSleep(ctx, "1001")
		why := errors.New("enough")
		cancel(why)
		_, err := x.Wait(t.Context())
		require.ErrorIs(t, err, why)
		require.ErrorIs(t, <-x.readErr, why)
		_, err = x.Shell.Write([]byte("x"))
		require.ErrorIs(t, err, why)
		waitUntilEnded("1001")
	})
	t.Run("close", func(t *testing.T) {
		x := openSleep(t.Context(), "1002")
		require.NoError(t, x.Close())
		require.NoError(t, x.Close())
		_, err := x.Wait(t.Context())
		require.ErrorIs(t, err, io.ErrClosedPipe)
		require.ErrorIs(t, <-x.readErr, io.ErrClosedPipe)
		waitUntilEnded("1002")
	})
	t.Run("stop", func(t *testing.T) {
		x := openSleep(t.Context(), "1003")
		_, err := sb.Stop(t.Context(), nil)
		require.NoError(t, err)
		code, err := x.Wait(t.Context())
		// The exit code may still arrive before the close.
		if err == nil {
			assert.NotZero(t, code)
		} else {
			require.ErrorIs(t, err, io.ErrUnexpectedEOF)
		}
	})
	t.Run("resumed", func(t *testing.T) {
		x := openScreen(t, sb, bash())
		x.until("ready> ")
		x.Type("exit 4\n")
		assert.Equal(t, 4, x.exit())
	})
	t.Run("wait gives up", func(t *testing.T) {
		x := openSleep(t.Context(), "1004")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := x.Wait(ctx)
		require.ErrorIs(t, err, context.Canceled)
		require.NoError(t, x.Resize(90, 25), "the terminal is still open")
	})
}

// TestShellPending: Open waits for a sandbox that is starting.
func TestShellPending(t *testing.T) {
	t.Parallel()
	gate := &testkit.Gateway{Next: testkit.Transport(t)}
	var requests []string
	gate.Set(func(req *http.Request, next http.RoundTripper) (*http.Response, error) {
		resp, err := next.RoundTrip(req)
		if requests = append(requests, req.Method); err == nil && len(requests) == 1 {
			err = testkit.AsPending(resp)
		}
		return resp, err
	})
	sb, err := testkit.Client(t, testkit.LightServer(t), sandbox.ClientOptions{HTTPClient: &http.Client{Transport: gate}}).Create(t.Context(), nil)
	require.NoError(t, err)
	require.Equal(t, sandbox.StatusPending, sb.Status())
	x := openScreen(t, sb, bash())
	assert.Equal(t, []string{"POST", "GET"}, requests[:2], "Open waits for the session first")
	x.Type("exit 2\n")
	assert.Equal(t, 2, x.exit())
}
