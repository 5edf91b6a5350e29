package screen

import "fmt"

// The exit codes for errors of this program. Without such an error, exec, run, connect and
// wait return the exit code of the remote command.
const (
	ExitFailure     = 1
	ExitUsage       = 2
	ExitNotFound    = 3
	ExitLogin       = 4
	ExitConflict    = 5
	ExitTimeout     = 6
	ExitRateLimit   = 7
	exitUnknown     = 8
	exitChanged     = 24 // the same as rsync's
	ExitNotStarted  = 125
	ExitNotRunnable = 126
	ExitNoProgram   = 127
	ExitInterrupted = 130
	exitBrokenPipe  = 141
	ExitTerminal    = 255
)

// ExitError ends the program with a code. Without an error it prints nothing.
type ExitError struct {
	Code int
	Err  error
}

func (e *ExitError) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("exit code %d", e.Code)
	}
	return e.Err.Error()
}

func (e *ExitError) Unwrap() error { return e.Err }

// ExitWith returns an error that ends the program with a code and prints nothing. It
// returns nil for 0.
func ExitWith(code int) error {
	if code == 0 {
		return nil
	}
	return &ExitError{Code: code}
}

// exitCodes maps exit codes to the codes of errors in JSON, for errors that have no other
// code.
var exitCodes = map[int]string{
	ExitNotFound: "not_found", ExitLogin: "no_credentials", ExitConflict: "conflict", ExitTimeout: "timeout", ExitRateLimit: "rate_limited",
	exitUnknown: "outcome_unknown", ExitNotStarted: "not_started",
}
