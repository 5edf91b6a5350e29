package screen

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/auth"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/line"
	"github.com/go-vercel/sandbox/terminal"
)

func TestExitCodes(t *testing.T) {
	t.Parallel()
	s := New(nil)
	for code, errs := range map[int][]error{
		ExitFailure:     {errors.New("x"), &sandbox.APIError{Status: 500}},
		ExitUsage:       {line.Usagef("x"), WithHint(line.Usagef("x"), "y")},
		ExitNotFound:    {&sandbox.APIError{Status: 404}, fs.ErrNotExist},
		ExitLogin:       {auth.ErrNoCredentials, &sandbox.APIError{Status: 401}, &sandbox.APIError{Status: 403}},
		ExitConflict:    {&sandbox.APIError{Status: 409}, &sandbox.APIError{Operation: "create sandbox", Status: 400, Message: "A sandbox with the name 'x' already exists in this project."}},
		ExitTimeout:     {context.DeadlineExceeded},
		ExitRateLimit:   {&sandbox.APIError{Status: 429}},
		ExitNoProgram:   {&sandbox.APIError{Operation: "run command", Status: 400, Code: "executable_not_found"}},
		ExitInterrupted: {context.Canceled},
		ExitTerminal:    {&terminal.ShellError{Err: io.ErrUnexpectedEOF}},
		42:              {&ExitError{Code: 42, Err: errors.New("x")}, fmt.Errorf("wrapped: %w", ExitWith(42))},
	} {
		for _, err := range errs {
			assert.Equal(t, code, s.Explain(err).Exit, "%T %v", err, err)
		}
	}
}
