//go:build unix

package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/term"
)

// screen is a terminal that the program runs in.
type screen struct {
	t    *testing.T
	cmd  *exec.Cmd
	ours *os.File // the end that the user has
	own  *os.File // the end that the program has

	mu   sync.Mutex
	seen bytes.Buffer
}

// inTerminal runs the program in a terminal of 24 rows and 80 columns.
func (d *desk) inTerminal(args ...string) *screen {
	d.t.Helper()
	ours, own, err := pty.Open()
	require.NoError(d.t, err)
	require.NoError(d.t, pty.Setsize(own, &pty.Winsize{Rows: 24, Cols: 80}))
	s := &screen{t: d.t, cmd: d.command(d.t.Context(), args...), ours: ours, own: own}
	s.cmd.Stdin, s.cmd.Stdout, s.cmd.Stderr = own, own, own
	s.cmd.Env = append(s.cmd.Env, "TERM=xterm-256color")
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	require.NoError(d.t, s.cmd.Start())
	go func() {
		buf := make([]byte, 4096)
		for {
			n, err := ours.Read(buf)
			s.mu.Lock()
			s.seen.Write(buf[:n])
			s.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	d.t.Cleanup(func() {
		own.Close()
		ours.Close()
	})
	return s
}

func (s *screen) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seen.String()
}

func (s *screen) press(keys string) {
	s.t.Helper()
	_, err := io.WriteString(s.ours, keys)
	require.NoError(s.t, err)
}

// until waits for a text, and forgets what came up to it.
func (s *screen) until(text string) {
	s.t.Helper()
	require.Eventually(s.t, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		i := bytes.Index(s.seen.Bytes(), []byte(text))
		if i < 0 {
			return false
		}
		s.seen.Next(i + len(text))
		return true
	}, time.Minute, 5*time.Millisecond, "%q is not on the screen:\n%s", text, &lazy{s})
}

// lazy shows the screen when the message is made.
type lazy struct{ s *screen }

func (l *lazy) String() string { return l.s.text() }

// ended waits for the end and returns the exit code. The terminal has to be as it
// was.
func (s *screen) ended() int {
	s.t.Helper()
	err := s.cmd.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		require.NoError(s.t, err)
	}
	assert.False(s.t, s.raw(), "the terminal is still raw")
	return s.cmd.ProcessState.ExitCode()
}

// raw reports whether the terminal is in raw mode.
func (s *screen) raw() bool {
	s.t.Helper()
	before, err := term.GetState(int(s.own.Fd()))
	require.NoError(s.t, err)
	_, err = term.MakeRaw(int(s.own.Fd()))
	require.NoError(s.t, err)
	after, err := term.GetState(int(s.own.Fd()))
	require.NoError(s.t, err)
	require.NoError(s.t, term.Restore(int(s.own.Fd()), before))
	return assert.ObjectsAreEqual(before, after)
}

func terminalDesk(t *testing.T) *desk {
	t.Helper()
	d := newDesk(t, nil)
	d.ok("create", "--name", "c")
	return d
}

// open connects with a shell whose prompt is known.
func (d *desk) open(args ...string) *screen {
	d.t.Helper()
	s := d.inTerminal(append([]string{"connect", "c", "--shell", "bash", "-e", "PS1=READY>"}, args...)...)
	s.press("export PS1='HERE''>'\r")
	s.until("HERE>")
	return s
}

func TestTerminalSizeAndCode(t *testing.T) {
	t.Parallel()
	s := terminalDesk(t).open()
	assert.True(t, s.raw())
	s.press("stty size\r")
	s.until("24 80")
	require.NoError(t, pty.Setsize(s.ours, &pty.Winsize{Rows: 50, Cols: 132}))
	require.NoError(t, s.cmd.Process.Signal(syscall.SIGWINCH))
	s.press("until [ \"$(stty size)\" = '50 132' ]; do sleep 0.05; done; echo resi''zed\r")
	s.until("resized")
	s.press("exit 5\r")
	s.until("connection to")
	assert.Equal(t, 5, s.ended())
}

// TestTerminalKeys presses Ctrl-C and Ctrl-Z, which are for the program there.
func TestTerminalKeys(t *testing.T) {
	t.Parallel()
	s := terminalDesk(t).open()
	s.press("sleep 4321\r")
	s.until("sleep 4321")
	s.press("\x03")
	s.until("HERE>")
	s.press("echo code $?\r")
	s.until("code 130")
	s.press("sleep 4321\r")
	s.until("sleep 4321")
	s.press("\x1a")
	s.until("Stopped")
	s.press("kill -9 %1; fg; exit 6\r")
	s.until("connection to")
	assert.Equal(t, 6, s.ended())
}

// TestTerminalPaste pastes a megabyte.
func TestTerminalPaste(t *testing.T) {
	t.Parallel()
	s := terminalDesk(t).open()
	text := []byte(strings.Repeat("0123456789abcdef\n", 1<<20/17))
	sum := sha256.Sum256(text)
	s.press("stty -echo -icanon; head -c " + itoa(len(text)) + " | sha256sum; stty sane\r")
	s.until("stty sane")
	_, err := s.ours.Write(text)
	require.NoError(t, err)
	s.until(hex.EncodeToString(sum[:]))
	s.press("exit\r")
	s.until("connection to")
	assert.Equal(t, 0, s.ended())
}

func itoa(n int) string {
	var b []byte
	for ; n > 0; n /= 10 {
		b = append([]byte{byte('0' + n%10)}, b...)
	}
	return string(b)
}

// TestTerminalSignals ends the program from outside: the terminal is put back.
func TestTerminalSignals(t *testing.T) {
	t.Parallel()
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGHUP} {
		s := terminalDesk(t).open()
		require.True(t, s.raw())
		require.NoError(t, s.cmd.Process.Signal(sig))
		assert.Equal(t, 128+int(sig), s.ended())
	}
}

// TestTerminalLost lets the server go away: the loss is told, with a code of its
// own.
func TestTerminalLost(t *testing.T) {
	t.Parallel()
	d := terminalDesk(t)
	s := d.open()
	require.NoError(t, d.server.Close())
	assert.Contains(t, []int{137, 255}, s.ended(), s.text())
}

// TestExecInTerminal runs a program in a terminal by exec -it and run -it.
func TestExecInTerminal(t *testing.T) {
	t.Parallel()
	d := terminalDesk(t)
	s := d.inTerminal("exec", "-it", "c", "--", "bash", "-c", "test -t 0 && test -t 1 && read -p 'name? ' n && echo hello $n; exit 4")
	s.until("name? ")
	s.press("you\r")
	s.until("hello you")
	assert.Equal(t, 4, s.ended())
	s = d.inTerminal("run", "--rm", "-it", "--", "bash", "-c", "test -t 0 && echo in a term''inal")
	s.until("in a terminal")
	assert.Equal(t, 0, s.ended())
	assert.Equal(t, "c\n", d.ok("ls", "-a", "-q"))
}

// TestQuestions answers what is asked at a terminal.
func TestQuestions(t *testing.T) {
	t.Parallel()
	d := terminalDesk(t)
	s := d.inTerminal("rm", "--all")
	s.until("[y/N]")
	s.press("n\r")
	assert.Equal(t, 1, s.ended())
	s = d.inTerminal("snapshot", "c")
	s.until("[y/N]")
	s.press("\x03")
	assert.Equal(t, 130, s.ended())
	s = d.inTerminal("snapshot", "c")
	s.until("[y/N]")
	s.press("y\r")
	s.until("created")
	assert.Equal(t, 0, s.ended())
	s = d.inTerminal("rm", "--all")
	s.until("[y/N]")
	s.press("y\r")
	assert.Equal(t, 0, s.ended())
	assert.Empty(t, d.ok("ls", "-a", "-q"))
}

// TestTableAtTerminal cuts lines to the width of the terminal, unless told not
// to.
func TestTableAtTerminal(t *testing.T) {
	t.Parallel()
	d := terminalDesk(t)
	s := d.inTerminal("ls", "--color", "never")
	assert.Equal(t, 0, s.ended())
	s.until("…")
	s = d.inTerminal("ls", "-o", "wide", "--color", "never")
	s.until("TAGS")
	assert.Equal(t, 0, s.ended())
}
