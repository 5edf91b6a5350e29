//go:build unix

package cli

import (
	"io"
	"os"
	"os/exec"
	"os/signal"
	"reflect"
	"syscall"

	"golang.org/x/term"

	"github.com/go-vercel/sandbox/cmd/sandbox/internal/screen"
)

// guardTerminal starts a process, the guard, that restores the terminal if this program is
// killed or panics. The returned function ends the guard. If the guard can't be started,
// guardTerminal does nothing.
func guardTerminal(terminal *os.File) (release func()) {
	none := func() {}
	program, err := os.Executable()
	if err != nil {
		return none
	}
	cmd := exec.Command(program, guardArgument)
	cmd.ExtraFiles = []*os.File{terminal}
	// The guard is in a process group of its own, so that it does not get the signals that
	// are sent to this program's group.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	in, err := cmd.StdinPipe()
	if err != nil {
		return none
	}
	out, err := cmd.StdoutPipe()
	if err != nil || cmd.Start() != nil {
		return none
	}
	_, _ = io.ReadFull(out, make([]byte, 1)) // the guard has read the state of the terminal, or has failed
	return func() {
		_, _ = in.Write([]byte{0}) // the guard may have ended
		_ = in.Close()
		_ = cmd.Wait()
	}
}

// undoScreen resets everything that an interrupted program may have changed: the alternate
// screen, a hidden cursor, mouse reports, bracketed paste, colors.
const undoScreen = "\x1b[?1049l\x1b[?25h\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1006l\x1b[?2004l\x1b[?1l\x1b>\x1b[0m\r\n"

// runGuard is the guard's process. Its file 3 is the terminal.
func runGuard() int {
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGTSTP, syscall.SIGTTOU)
	terminal := os.NewFile(3, "terminal")
	if terminal == nil {
		return screen.ExitFailure
	}
	fd := int(terminal.Fd())
	before, err := term.GetState(fd)
	if err != nil {
		return screen.ExitFailure
	}
	if _, err := os.Stdout.Write([]byte{0}); err != nil {
		return screen.ExitFailure
	}
	if n, _ := os.Stdin.Read(make([]byte, 1)); n == 1 {
		return 0
	}
	// If the terminal is no longer raw, another program, such as a shell, has set its own
	// mode. Keep that mode.
	now, err := term.MakeRaw(fd)
	if err != nil {
		return screen.ExitFailure
	}
	raw, err := term.GetState(fd)
	if err != nil || !reflect.DeepEqual(now, raw) {
		_ = term.Restore(fd, now) // best effort
		return 0
	}
	if term.Restore(fd, before) != nil {
		return screen.ExitFailure
	}
	_, _ = terminal.WriteString(undoScreen) // best effort
	return 0
}
