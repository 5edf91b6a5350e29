package sandbox

import "strconv"

// ProcessState describes how a command ended.
type ProcessState struct{ code int }

// ExitCode returns the exit code: 128 plus the signal's number if the command
// was ended by a signal, and -1 if p is nil because the command has not ended.
func (p *ProcessState) ExitCode() int {
	if p == nil {
		return -1
	}
	return p.code
}

// Success reports whether the exit code is zero.
func (p *ProcessState) Success() bool { return p.ExitCode() == 0 }

// Exited reports whether the command has ended.
func (p *ProcessState) Exited() bool { return p != nil }

// String describes the state like package os: "exit status 3".
func (p *ProcessState) String() string {
	if p == nil {
		return "<nil>"
	}
	return "exit status " + strconv.Itoa(p.code)
}

// ExitError reports an unsuccessful exit of a command that a [Cmd] ran. Any other
// error of Cmd means that something else failed: the sandbox, the connection, a
// writer, or the start of the program. So
//
//	exit, ok := errors.AsType[*sandbox.ExitError](err)
//
// tells a program that failed from a sandbox that failed. If the program failed
// and its output was lost as well, the error matches both.
type ExitError struct {
	*ProcessState
	// Stderr holds the standard error of a command run by [Cmd.Output], if it
	// was not otherwise collected, or of a step of [Sandbox.CreateUser] and others.
	// Long output is reduced to its first and last 32 KiB.
	Stderr []byte
}

// Error returns a description such as "exit status 3".
func (e *ExitError) Error() string { return e.ProcessState.String() }
