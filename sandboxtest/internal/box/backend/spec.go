package backend

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
)

// Size is the size of a terminal in characters.
type Size struct{ Cols, Rows uint16 }

// Spec describes a command.
type Spec struct {
	// Path is the program: a path, or a name that is looked up in PATH.
	Path string
	Args []string
	// Env is the environment as "KEY=value". Of two with the same key the last counts.
	// PATH, HOME, USER, LOGNAME, SHELL and LANG have defaults.
	Env []string
	// Dir is the working directory, relative to the account's. Empty means the account's.
	Dir string
	// User is "" for the sandbox's user, or "root". In folder mode both are the host
	// process's user.
	User string
	// OpenStdin leaves the input open for [Process.Input]. Otherwise it is empty.
	OpenStdin bool
	// Stdout and Stderr receive the output as it is written. On Linux one goroutine
	// writes both, in the order of arrival. Elsewhere there is a goroutine for each, so
	// both may be the same writer only if it is safe for concurrent use. Nil discards the
	// output. With TTY all output goes to Stdout. A writer that blocks blocks the
	// command. Output is lost if the writer fails.
	Stdout, Stderr io.Writer
	// TTY runs the command on a pseudo terminal of this size.
	TTY *Size
}

// LaunchError reports a command that could not be started, with the exit code and the
// message of a shell.
type LaunchError struct {
	Code    int
	Message string
}

// The exit codes of commands that could not be started.
const (
	codeNotRunnable = 126
	CodeNotFound    = 127
)

func (e *LaunchError) Error() string { return e.Message }

// Check returns an error for a command that no sandbox can start.
func (s *Spec) Check() error {
	if s.Path == "" {
		return errors.New("empty program name")
	}
	if s.User != "" && s.User != RootUser {
		return fmt.Errorf("user %q, want %q or empty", s.User, RootUser)
	}
	if s.OpenStdin && s.TTY != nil {
		return errors.New("OpenStdin excludes TTY")
	}
	if strings.ContainsRune(s.Path+s.Dir, 0) {
		return errors.New("NUL byte in the program name or directory")
	}
	for _, arg := range s.Args {
		if strings.ContainsRune(arg, 0) {
			return errors.New("NUL byte in an argument")
		}
	}
	for _, kv := range s.Env {
		// The value may be a secret, so it is not shown.
		if key, _, ok := strings.Cut(kv, "="); !ok || key == "" || strings.ContainsRune(kv, 0) {
			return errors.New("an environment entry is not of the form KEY=value, or has a NUL byte")
		}
	}
	return nil
}

// Complete makes the directory absolute and adds the defaults to the environment.
func (s *Spec) Complete(account Account, path string) (err error) {
	s.Env = defaultEnv(s, account, path)
	s.Dir, err = CleanPath(".", s.Dir, account.WorkDir)
	return err
}

// exitCode returns the exit code that a shell would report.
func exitCode(state *os.ProcessState) int {
	if ws, ok := state.Sys().(interface {
		Signaled() bool
		Signal() syscall.Signal
	}); ok && ws.Signaled() {
		return 128 + int(ws.Signal())
	}
	return state.ExitCode()
}
