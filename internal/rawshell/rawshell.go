// Package rawshell opens terminals in a sandbox that pass every byte unchanged, in both
// directions at the same time, so that programs can communicate over them.
package rawshell

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/internal/clean"
	"github.com/go-vercel/sandbox/internal/redact"
	"github.com/go-vercel/sandbox/terminal"
)

// Raw is the first line of a script for Open. After it the terminal passes bytes
// unchanged.
const Raw = "stty raw -echo -onlcr 2>/dev/null\n"

// When the script is ready, it prints a greeting.
const greeting = "\x01sandbox-tunnel-ready\x02"

// Greet is the line of a script that prints the greeting.
const Greet = `printf '\001sandbox-tunnel-ready\002'` + "\n"

// maxPreamble limits the output before the greeting.
const maxPreamble = 64 << 10

// Stream carries the standard input and output of a script.
type Stream struct {
	*terminal.Shell
	rest bytes.Buffer // output that arrived along with the greeting
}

// Read returns what the script writes after its greeting.
func (s *Stream) Read(p []byte) (int, error) {
	if s.rest.Len() > 0 {
		return s.rest.Read(p)
	}
	return s.Shell.Read(p)
}

// EndedError reports a script that ended before its greeting.
type EndedError struct {
	Code   int
	Output string // as the sandbox sent it: escape it before printing
}

func (e *EndedError) Error() string {
	text := strings.TrimSpace(e.Output)
	return fmt.Sprintf("the other end of the tunnel ended with exit code %d: %q", e.Code, redact.Printable(text[max(0, len(text)-200):]))
}

// OpenOwn is Open with a separate environment, for a script that runs none of the
// caller's programs.
func OpenOwn(ctx context.Context, sb *sandbox.Sandbox, shell, script string, args ...string) (s *Stream, err error) {
	runErr := clean.Run(shell, arguments(shell, script, args), func(name string, args []string) (int, string, error) {
		s, err = open(ctx, sb, name, args)
		if ended, ok := errors.AsType[*EndedError](err); ok {
			return ended.Code, ended.Output, nil
		}
		return 0, "", err
	})
	return s, cmp.Or(runErr, err)
}

// Open runs a shell script, and returns when the script has printed its greeting. The
// caller closes the stream. It also ends with ctx.
func Open(ctx context.Context, sb *sandbox.Sandbox, shell, script string, args ...string) (*Stream, error) {
	return open(ctx, sb, shell, arguments(shell, script, args))
}

func arguments(shell, script string, args []string) []string {
	return append([]string{"-c", script, shell}, args...)
}

func open(ctx context.Context, sb *sandbox.Sandbox, name string, args []string) (*Stream, error) {
	sh, err := terminal.Open(ctx, sb, &terminal.ShellOptions{Command: name, Args: args})
	if err != nil {
		return nil, err
	}
	s := &Stream{Shell: sh}
	if err := s.awaitGreeting(ctx); err != nil {
		_ = sh.Close() // always nil
		return nil, err
	}
	return s, nil
}

// awaitGreeting reads up to the end of the greeting.
func (s *Stream) awaitGreeting(ctx context.Context) error {
	var seen []byte
	buf := make([]byte, 4096)
	for len(seen) < maxPreamble {
		n, err := s.Shell.Read(buf)
		seen = append(seen, buf[:n]...)
		if _, rest, ok := bytes.Cut(seen, []byte(greeting)); ok {
			s.rest.Write(rest)
			return nil
		}
		if errors.Is(err, io.EOF) {
			code, err := s.Wait(ctx)
			if err != nil {
				return err
			}
			return &EndedError{Code: code, Output: string(seen)}
		}
		if err != nil {
			return err
		}
	}
	return errors.New("the other end of the tunnel did not begin")
}
