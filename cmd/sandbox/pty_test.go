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
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/charmbracelet/x/ansi"
	"github.com/creack/pty"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/term"
)

// screen is the terminal in which the program runs.
type screen struct {
	t    *testing.T
	cmd  *exec.Cmd
	ours *os.File // the user's end
	own  *os.File // the program's end

	mu   sync.Mutex
	seen bytes.Buffer
}

// inTerminal runs the program in a terminal of 24 rows and 80 columns.
func (d *workspace) inTerminal(args ...string) *screen {
	d.t.Helper()
	return d.startInTerminalOf("xterm-256color", 80, args...)
}

// startInTerminalOf starts the program in a terminal of a type, with a number of columns.
func (d *workspace) startInTerminalOf(kind string, columns uint16, args ...string) *screen {
	d.t.Helper()
	opened, own, err := pty.Open()
	require.NoError(d.t, err)
	ours := unblocked(d.t, opened)
	require.NoError(d.t, pty.Setsize(own, &pty.Winsize{Rows: 24, Cols: columns}))
	s := &screen{t: d.t, cmd: d.command(d.t.Context(), args...), ours: ours, own: own}
	s.cmd.Stdin, s.cmd.Stdout, s.cmd.Stderr = own, own, own
	s.cmd.Env = append(s.cmd.Env, "TERM="+kind)
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

// unblocked replaces f by a file whose pending reads end when it is closed. A pending read
// of f itself would keep the terminal open.
func unblocked(t *testing.T, f *os.File) *os.File {
	t.Helper()
	fd, err := syscall.Dup(int(f.Fd()))
	require.NoError(t, err)
	syscall.CloseOnExec(fd)
	require.NoError(t, syscall.SetNonblock(fd, true))
	require.NoError(t, f.Close())
	return os.NewFile(uintptr(fd), f.Name())
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

// until waits for a text, and discards everything up to it.
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

// lazy reads the screen only when a failure message is formatted.
type lazy struct{ s *screen }

func (l *lazy) String() string { return l.s.text() }

// ended waits for the program's end and returns the exit code. It checks that the terminal
// has its original mode again.
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

func terminalWorkspace(t *testing.T) *workspace {
	t.Helper()
	d := newWorkspace(t, nil)
	d.ok("create", "--name", "c")
	return d
}

// open connects with a shell whose prompt is known.
func (d *workspace) open(args ...string) *screen {
	d.t.Helper()
	s := d.inTerminal(append([]string{"connect", "c", "-e", "SHELL=bash", "-e", "PS1=READY>"}, args...)...)
	s.press("export PS1='HERE''>'\r")
	s.until("HERE>")
	return s
}

func TestTerminalSizeAndCode(t *testing.T) {
	t.Parallel()
	s := terminalWorkspace(t).open()
	assert.True(t, s.raw())
	s.press("stty size\r")
	s.until("24 80")
	require.NoError(t, pty.Setsize(s.own, &pty.Winsize{Rows: 50, Cols: 132}))
	require.NoError(t, s.cmd.Process.Signal(syscall.SIGWINCH))
	s.press("until [ \"$(stty size)\" = '50 132' ]; do sleep 0.1; done; echo resi''zed\r")
	s.until("resized")
	s.press("exit 5\r")
	s.until("connection to")
	assert.Equal(t, 5, s.ended())
}

// TestTerminalKeys presses Ctrl-C and Ctrl-Z, which affect the program in the sandbox.
func TestTerminalKeys(t *testing.T) {
	t.Parallel()
	s := terminalWorkspace(t).open()
	// The keys are for a running program: the shell itself ignores Ctrl-Z.
	const program = "sh -c 'echo it ru''ns; exec sleep 4321'\r"
	s.press(program)
	s.until("it runs")
	s.press("\x03")
	s.until("HERE>")
	s.press("echo code $?\r")
	s.until("code 130")
	s.press(program)
	s.until("it runs")
	s.press("\x1a")
	s.until("Stopped")
	s.press("kill -9 %1; fg; exit 6\r")
	s.until("connection to")
	assert.Equal(t, 6, s.ended())
}

// TestTerminalPaste pastes a megabyte.
func TestTerminalPaste(t *testing.T) {
	t.Parallel()
	s := terminalWorkspace(t).open()
	text := []byte(strings.Repeat("0123456789abcdef\n", 1<<20/17))
	sum := sha256.Sum256(text)
	s.press("stty -echo -icanon; head -c " + strconv.Itoa(len(text)) + " | sha256sum; stty sane\r")
	s.until("stty sane")
	_, err := s.ours.Write(text)
	require.NoError(t, err)
	s.until(hex.EncodeToString(sum[:]))
	s.press("exit\r")
	s.until("connection to")
	assert.Equal(t, 0, s.ended())
}

// TestTerminalSignals ends the program by signals: it restores the terminal.
func TestTerminalSignals(t *testing.T) {
	t.Parallel()
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGHUP} {
		s := terminalWorkspace(t).open()
		require.True(t, s.raw())
		require.NoError(t, s.cmd.Process.Signal(sig))
		assert.Equal(t, 128+int(sig), s.ended())
	}
}

// panicking makes the program panic, in a separate goroutine, when it receives SIGUSR1.
const panicking = "SANDBOX_TEST_PANICKING"

func init() {
	if os.Getenv(panicking) == "" {
		return
	}
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGUSR1)
	go func() {
		<-c
		panic("as the test wants it")
	}()
}

// TestTerminalCrash: the program dies without restoring the terminal, and the guard
// restores it.
func TestTerminalCrash(t *testing.T) {
	t.Parallel()
	for name, sig := range map[string]syscall.Signal{"killed": syscall.SIGKILL, "a panic": syscall.SIGUSR1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := terminalWorkspace(t)
			d.env = append(d.env, panicking+"=1")
			s := d.open()
			require.True(t, s.raw())
			s.press("printf '\\033[?1049h\\033[?25l'; echo on another'' screen\r")
			s.until("on another screen")
			require.NoError(t, s.cmd.Process.Signal(sig))
			var exit *exec.ExitError
			require.ErrorAs(t, s.cmd.Wait(), &exit)
			assert.NotZero(t, exit.ExitCode())
			s.until("\x1b[?1049l\x1b[?25h")
			assert.False(t, s.raw(), "the terminal is still raw")
		})
	}
}

// TestTerminalLost cuts a terminal's connection: the program reports that, with an exit
// code of its own.
func TestTerminalLost(t *testing.T) {
	t.Parallel()
	d := terminalWorkspace(t)
	r := newRelay(t, d)
	s := d.open()
	r.cut()
	s.until("opens a new terminal")
	assert.Equal(t, 255, s.ended())
}

// TestDeadTerminal closes the terminal, as when its window is closed: neither the sandbox
// nor the program in it remains.
func TestDeadTerminal(t *testing.T) {
	t.Parallel()
	for name, options := range map[string][]string{"in a terminal": {"-it"}, "beside one": nil} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newWorkspace(t, nil)
			sleep := endless()
			s := d.inTerminal(append(append([]string{"run", "--rm"}, options...), "--", "sh", "-c", "echo be''gun; exec "+sleep)...)
			s.until("begun")
			require.Eventually(t, func() bool { return len(processes(t, sleep)) > 0 }, time.Minute, 5*time.Millisecond)
			require.NoError(t, s.own.Close())
			require.NoError(t, s.ours.Close())
			_ = s.cmd.Wait() // the test checks the exit code
			assert.Equal(t, 128+int(syscall.SIGHUP), s.cmd.ProcessState.ExitCode(), s.cmd.ProcessState)
			d.requireNoSandbox()
			assert.Empty(t, processes(t, sleep))
		})
	}
}

// TestServerGone stops the server while a terminal is open.
func TestServerGone(t *testing.T) {
	t.Parallel()
	d := terminalWorkspace(t)
	s := d.open()
	require.NoError(t, d.server.Close())
	assert.Contains(t, []int{137, 255}, s.ended(), s.text())
}

// TestExecInTerminal runs a program in a terminal by exec -it and run -it.
func TestExecInTerminal(t *testing.T) {
	t.Parallel()
	d := terminalWorkspace(t)
	s := d.inTerminal("exec", "-it", "c", "--", "bash", "-c", "test -t 0 && test -t 1 && read -p 'name? ' n && echo hello $n; exit 4")
	s.until("name? ")
	s.press("you\r")
	s.until("hello you")
	assert.Equal(t, 4, s.ended())
	s = d.inTerminal("run", "--rm", "-it", "--", "bash", "-c", "test -t 0 && echo in a term''inal")
	s.until("in a terminal")
	assert.Equal(t, 0, s.ended())
	assert.Equal(t, "c\n", d.ok("ls", "-a", "-q"))
	s = d.inTerminal("exec", "-it", "--binary", "c", "true")
	s.until("--binary is for commands whose output is piped")
	assert.Equal(t, 2, s.ended())
}

// TestNoTerminal: a command that needs a terminal is refused without one before any
// request, so that no sandbox is created for nothing.
func TestNoTerminal(t *testing.T) {
	t.Parallel()
	d := newWorkspace(t, nil)
	for _, line := range []string{
		"sh", "sh --rm", "connect c", "ssh c", "create --connect", "create claude", "fork c --connect", "run --connect -- true", "run --rm --connect -- true",
	} {
		got := d.run("", strings.Fields(line)...)
		assert.Equal(t, 2, got.code, "%s: %s", line, got.stderr)
		assert.Contains(t, got.stderr, "needs a terminal", line)
		assert.Empty(t, got.stdout, line)
		assert.Empty(t, d.seen(), line)
	}
}

// TestQuestions answers the program's questions at a terminal.
func TestQuestions(t *testing.T) {
	t.Parallel()
	d := terminalWorkspace(t)
	s := d.startInTerminalOf("xterm", 30, "rm", "--all")
	s.until("Remove 1 sandbox for good: c?\r\n[y/N] ") // wrapped between words
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
	// If the sandbox does not exist, no question is asked.
	for _, line := range [][]string{{"snapshot", "nope"}, {"config", "tags", "nope"}} {
		s = d.inTerminal(line...)
		assert.Equal(t, 3, s.ended(), s.text())
		assert.NotContains(t, s.text(), "[y/N]")
	}
	// In other programs, this command line would show the list. Here it clears the list.
	d.ok("config", "tags", "c", "-t", "k=v")
	s = d.inTerminal("config", "tags", "c")
	s.until("Remove all tags of c (1)? [y/N]")
	s.press("n\r")
	assert.Equal(t, 1, s.ended())
	assert.Contains(t, d.ok("inspect", "c"), `"k": "v"`)
	d.ok("start", "c")
	s = d.inTerminal("stop", "--all")
	s.until("Stop 1 sandbox: c? [y/N]")
	s.press("n\r")
	assert.Equal(t, 1, s.ended())
	assert.Equal(t, "c\n", d.ok("ls", "-q"))
	s = d.inTerminal("stop", "--all")
	s.until("[y/N]")
	s.press("y\r")
	s.until("Sandbox c stopped.")
	assert.Equal(t, 0, s.ended())
	s = d.inTerminal("rm", "--all")
	s.until("[y/N]")
	s.press("y\r")
	assert.Equal(t, 0, s.ended())
	assert.Empty(t, d.ok("ls", "-a", "-q"))
}

// TestProgressFits copies at a narrow terminal: no progress line is wider than the
// terminal.
func TestProgressFits(t *testing.T) {
	t.Parallel()
	d := terminalWorkspace(t)
	d.write("a-file-whose-name-is-rather-long.bin", strings.Repeat("x", 8<<20))
	for _, columns := range []uint16{60, 80, 120} {
		s := d.startInTerminalOf("xterm", columns, "cp", "--progress", "--color", "never", "a-file-whose-name-is-rather-long.bin", "c:/vercel/")
		assert.Equal(t, 0, s.ended())
		require.Eventually(t, func() bool { return strings.Contains(s.text(), "Copied") }, time.Minute, 5*time.Millisecond)
		shown := 0
		for _, line := range strings.FieldsFunc(s.text(), func(r rune) bool { return r == '\r' || r == '\n' }) {
			if strings.Contains(line, "%") {
				shown++
				assert.LessOrEqual(t, ansi.StringWidth(line), int(columns), "%q", line)
			}
		}
		assert.Positive(t, shown)
	}
}

// TestDumbTerminal: a terminal without escape sequences receives none.
func TestDumbTerminal(t *testing.T) {
	t.Parallel()
	s := terminalWorkspace(t).startInTerminalOf("dumb", 80, "ls")
	assert.Equal(t, 0, s.ended())
	require.Eventually(t, func() bool { return strings.Contains(s.text(), "running") }, time.Minute, 5*time.Millisecond)
	assert.NotContains(t, s.text(), "\x1b")
}

// TestTableAtTerminal: at a terminal, the lines of a table are cut to the width, errors are
// wrapped between words, and the lines of stop between fields.
func TestTableAtTerminal(t *testing.T) {
	t.Parallel()
	d := terminalWorkspace(t)
	s := d.inTerminal("ls", "--color", "never")
	assert.Equal(t, 0, s.ended())
	s.until("…")
	s = d.startInTerminalOf("xterm", 40, "create", "--name", "c", "--color", "never")
	s.until("error: A sandbox with the name 'c'\r\n       already exists for this project.\r\n")
	assert.Equal(t, 5, s.ended())
	s = d.startInTerminalOf("xterm", 60, "stop", "--color", "never", "c")
	assert.Equal(t, 0, s.ended())
	require.Eventually(t, func() bool { return strings.Contains(s.text(), "expires: ") }, time.Minute, 5*time.Millisecond)
	for _, line := range strings.FieldsFunc(s.text(), func(r rune) bool { return r == '\r' || r == '\n' }) {
		assert.LessOrEqual(t, ansi.StringWidth(line), 60, line)
	}
}

// TestRemoveStarted starts a sandbox while rm asks whether to remove it.
func TestRemoveStarted(t *testing.T) {
	t.Parallel()
	d := newWorkspace(t, nil)
	d.ok("create", "--name", "again", "--tag", "env=ci")
	d.ok("create", "--name", "idle", "--tag", "env=ci")
	d.ok("stop", "again", "idle")
	screen := d.inTerminal("rm", "--status", "stopped", "--tag", "env=ci")
	screen.until("again")
	screen.until("[y/N]")
	d.ok("exec", "again", "--", "true")
	d.ok("stop", "again") // the sandbox was used in the meantime, and is stopped again
	screen.press("y\n")
	screen.until("used after it was found")
	assert.Equal(t, 5, screen.ended(), screen.text())
	assert.Equal(t, "again\n", d.ok("ls", "-a", "-q"))
}
