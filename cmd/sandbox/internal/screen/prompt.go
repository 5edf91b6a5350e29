package screen

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/go-vercel/sandbox/cmd/sandbox/internal/line"
)

// Confirm asks a yes-or-no question. Without a terminal, --yes must be given.
func (s *Screen) Confirm(ctx context.Context, question string) error {
	if s.Opts.Yes {
		return nil
	}
	if !s.Asks() {
		return WithHint(line.Usagef("%s", question), "add --yes to agree without a terminal")
	}
	line, err := s.Ask(ctx, question+" [y/N]")
	if err != nil {
		return err
	}
	if line = strings.ToLower(line); line == "y" || line == "yes" {
		return nil
	}
	return &ExitError{Code: ExitFailure, Err: errors.New("nothing was done")}
}

// Ask asks a question and returns the typed line. At the end of the input, the line is
// empty.
func (s *Screen) Ask(ctx context.Context, question string) (string, error) {
	fmt.Fprint(s.Err, Prose(s.Err, question), " ")
	answer := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(s.In).ReadString('\n')
		answer <- strings.TrimSpace(line)
	}()
	select {
	case <-ctx.Done():
		fmt.Fprintln(s.Err)
		return "", ctx.Err()
	case line := <-answer:
		return line, nil
	}
}

// Asks reports whether the program may ask questions: it has a terminal, and neither an
// option nor CI forbids it.
func (s *Screen) Asks() bool {
	ci, _ := s.Env.Lookup("CI")
	return !s.Opts.NoInput && (ci == "" || ci == "0" || ci == "false") && line.IsTerminal(s.In) && s.Err.Terminal
}

// Input returns a reader of standard input. When ctx ends, reads fail, so that a signal can
// interrupt them.
func (s *Screen) Input(ctx context.Context) io.Reader {
	r, w := io.Pipe()
	go func() {
		_, err := io.Copy(w, s.In)
		w.CloseWithError(err)
	}()
	context.AfterFunc(ctx, func() { w.CloseWithError(ctx.Err()) })
	return r
}
