//go:build linux

package terminal_test

import (
	"bytes"
	"context"
	"io"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/internal/test/needs"
	"github.com/go-vercel/sandbox/internal/test/testkit"
	"github.com/go-vercel/sandbox/internal/test/testmain"
	"github.com/go-vercel/sandbox/terminal"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestMain fails if a goroutine leaks.
func TestMain(m *testing.M) { testmain.Main(m) }

const patience = 2 * time.Minute

// window is a local terminal with a user in front of it.
type window struct {
	t         *testing.T
	user, tty *os.File
	before    unix.Termios
	mu        sync.Mutex
	text      bytes.Buffer
	more      chan struct{}
}

func openWindow(t *testing.T, rows, cols uint16) *window {
	t.Setenv("TERM", "xterm")
	user, tty, err := pty.Open()
	require.NoError(t, err)
	w := &window{t: t, user: user, tty: tty, more: make(chan struct{}, 1)}
	w.resize(rows, cols)
	w.before = w.mode()
	reading := make(chan struct{})
	go func() {
		defer close(reading)
		_, _ = io.Copy(w, user) // ends with the terminal
	}()
	t.Cleanup(func() {
		tty.Close()
		user.Close()
		<-reading
	})
	return w
}

func (w *window) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.text.Write(p)
	select {
	case w.more <- struct{}{}:
	default:
	}
	return len(p), nil
}

func (w *window) mode() unix.Termios {
	m, err := unix.IoctlGetTermios(int(w.tty.Fd()), unix.TCGETS)
	require.NoError(w.t, err)
	return *m
}

func (w *window) isRaw() bool { return w.mode().Lflag&(unix.ICANON|unix.ECHO|unix.ISIG) == 0 }

func (w *window) resize(rows, cols uint16) {
	require.NoError(w.t, pty.Setsize(w.user, &pty.Winsize{Rows: rows, Cols: cols}))
}

func (w *window) press(keys string) {
	_, err := io.WriteString(w.user, keys)
	require.NoError(w.t, err)
}

func (w *window) until(text string) {
	w.t.Helper()
	for deadline := time.After(patience); ; {
		w.mu.Lock()
		shown := w.text.String()
		if at := strings.Index(shown, text); at >= 0 {
			w.text.Next(at + len(text))
			w.mu.Unlock()
			return
		}
		w.mu.Unlock()
		select {
		case <-w.more:
		case <-deadline:
			require.Failf(w.t, "the text did not appear", "want %q, have %q", text, shown)
		}
	}
}

type result struct {
	code int
	err  error
}

// run connects a shell to the window and waits for its prompt.
func (w *window) run(ctx context.Context, sb *sandbox.Sandbox) <-chan result {
	done := make(chan result, 1)
	go func() {
		code, err := terminal.Run(ctx, sb, &terminal.ShellOptions{
			Command: "bash", Args: []string{"--norc", "--noprofile"}, Env: sandbox.Env{"PS1": "ready> "},
		}, &terminal.Options{Stdin: w.tty, Stdout: w.tty})
		done <- result{code, err}
	}()
	w.until("ready> ")
	require.True(w.t, w.isRaw(), "the terminal is raw")
	return done
}

func (w *window) ended(done <-chan result) result {
	w.t.Helper()
	select {
	case r := <-done:
		assert.Equal(w.t, w.before, w.mode(), "the terminal is restored")
		return r
	case <-time.After(patience):
		require.Fail(w.t, "Run did not return")
		return result{}
	}
}

func newSandbox(t *testing.T) *sandbox.Sandbox {
	sb, err := testkit.LightServer(t).Client().Create(t.Context(), nil)
	require.NoError(t, err)
	return sb
}

// TestRun: key presses reach the sandbox, including Ctrl-C; the size follows
// the window; and the exit code is returned.
func TestRun(t *testing.T) {
	w := openWindow(t, 31, 101)
	done := w.run(t.Context(), newSandbox(t))
	w.press("stty size; echo is $TERM\r")
	w.until("31 101\r\n")
	w.until("is xterm\r\n")
	w.until("ready> ")

	w.resize(44, 133)
	require.NoError(t, syscall.Kill(os.Getpid(), syscall.SIGWINCH))
	w.press("while [ \"$(stty size)\" != '44 133' ]; do sleep 0.1; done; echo has \"\"followed\r")
	w.until("has followed\r\n")
	w.until("ready> ")

	w.press("sh -c 'echo going to sleep; exec sleep 1000'\r")
	w.until("going to sleep\r\n")
	w.press("\x03")
	w.until("ready> ")
	w.press("exit 7\r")
	r := w.ended(done)
	require.NoError(t, r.err)
	assert.Equal(t, 7, r.code)
}

// TestEndOfFile: a program ends at the end of an input that is not a terminal, even a shell
// with a line editor that starts to read later.
func TestEndOfFile(t *testing.T) {
	sb := newSandbox(t)
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	require.NoError(t, err)
	defer null.Close()
	for i, in := range []string{"", "exit 3\n", "exit 4", "echo no newline"} {
		for j, shell := range []*terminal.ShellOptions{nil, {Command: "bash", Args: []string{"--norc", "--noprofile", "-i"}}, {Command: "sh"}, {Command: "cat"}} {
			if i != j && !needs.Slow() { // without SANDBOX_SLOW=1, test each input and each program once
				continue
			}
			r, w, err := os.Pipe()
			require.NoError(t, err)
			_, err = w.WriteString(in)
			require.NoError(t, err)
			w.Close()
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			code, err := terminal.Run(ctx, sb, shell, &terminal.Options{Stdin: r, Stdout: null})
			cancel()
			r.Close()
			require.NoError(t, err, "%q, %v", in, shell)
			if want, exits := map[string]int{"exit 3\n": 3, "exit 4": 4}[in]; exits && (shell == nil || shell.Command != "cat") {
				assert.Equal(t, want, code, "%q, %v", in, shell)
			}
		}
	}
}

// TestTerminalRestored: the terminal is restored however Run returns.
func TestTerminalRestored(t *testing.T) {
	t.Run("context", func(t *testing.T) {
		w := openWindow(t, 24, 80)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		done := w.run(ctx, newSandbox(t))
		cancel()
		require.ErrorIs(t, w.ended(done).err, context.Canceled)
		w.until("\x1b[?1049l") // leaves the alternate screen
	})
	t.Run("signal", func(t *testing.T) {
		w := openWindow(t, 24, 80)
		done := w.run(t.Context(), newSandbox(t))
		require.NoError(t, syscall.Kill(os.Getpid(), syscall.SIGTERM))
		var bySignal *terminal.SignalError
		require.ErrorAs(t, w.ended(done).err, &bySignal)
		assert.Equal(t, syscall.SIGTERM, bySignal.Signal)
	})
	t.Run("left", func(t *testing.T) {
		w := openWindow(t, 24, 80)
		done := w.run(t.Context(), newSandbox(t))
		w.press("stty -echo; echo on; exec cat\r")
		w.until("on\r\n")
		w.press("a~.b\r~") // not at the beginning of a line
		w.press("~c\r~d\r")
		w.until("a~.b\r\n~c\r\n~d\r\n")
		w.press("~.")
		require.ErrorIs(t, w.ended(done).err, terminal.ErrLeft)
	})
	t.Run("lost", func(t *testing.T) {
		w := openWindow(t, 24, 80)
		srv := testkit.LightServer(t)
		sb, err := srv.Client().Create(t.Context(), nil)
		require.NoError(t, err)
		done := w.run(t.Context(), sb)
		require.NoError(t, srv.Close())
		r := w.ended(done)
		if r.err != nil {
			require.ErrorIs(t, r.err, io.ErrUnexpectedEOF)
		} else {
			assert.NotZero(t, r.code, "the program was killed")
		}
	})
	t.Run("refused", func(t *testing.T) {
		w := openWindow(t, 24, 80)
		_, err := terminal.Run(t.Context(), newSandbox(t), &terminal.ShellOptions{Cols: -1}, &terminal.Options{Stdin: w.tty, Stdout: w.tty})
		require.ErrorIs(t, err, sandbox.ErrInvalid)
		assert.Equal(t, w.before, w.mode())
	})
}

// TestPipes: the whole input is sent if it is not a terminal, followed by EOF, whether or
// not the input ends in a newline.
func TestPipes(t *testing.T) {
	sb := newSandbox(t)
	for input, want := range map[string]string{"one\ntwo\n": "one\r\ntwo\r\n", "one\ntwo": "one\r\ntwo", "": ""} {
		in, feed, err := os.Pipe()
		require.NoError(t, err)
		defer in.Close()
		show, out, err := os.Pipe()
		require.NoError(t, err)
		defer show.Close()
		text := make(chan string, 1)
		go func() {
			all, _ := io.ReadAll(show)
			text <- string(all)
		}()
		_, err = io.WriteString(feed, input)
		require.NoError(t, err)
		require.NoError(t, feed.Close())
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		code, err := terminal.Run(ctx, sb, &terminal.ShellOptions{
			Command: "sh", Args: []string{"-c", "stty -echo; echo up; cat; exit 3"},
		}, &terminal.Options{Stdin: in, Stdout: out})
		cancel()
		require.NoError(t, err, "%q", input)
		assert.Equal(t, 3, code)
		require.NoError(t, out.Close())
		_, shown, _ := strings.Cut(<-text, "up\r\n")
		assert.Equal(t, want, shown)
	}
}

// TestOutputFails: Run returns when the output can't be written, whether or not the program
// continues to write.
func TestOutputFails(t *testing.T) {
	sb := newSandbox(t)
	for _, program := range []string{"yes", "echo up; exec sleep 1000"} {
		in, feed, err := os.Pipe()
		require.NoError(t, err)
		show, out, err := os.Pipe()
		require.NoError(t, err)
		require.NoError(t, show.Close())
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		_, err = terminal.Run(ctx, sb, &terminal.ShellOptions{Command: "sh", Args: []string{"-c", program}}, &terminal.Options{Stdin: in, Stdout: out})
		cancel()
		require.ErrorIs(t, err, syscall.EPIPE, program)
		for _, f := range []*os.File{in, feed, out} {
			require.NoError(t, f.Close())
		}
	}
}
