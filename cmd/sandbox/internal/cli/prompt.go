package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
)

// confirm asks a yes-or-no question. Without a terminal, --yes must be given.
func (s *stdio) confirm(ctx context.Context, question string) error {
	if s.opts.yes {
		return nil
	}
	if !s.asks() {
		return withHint(usagef("%s", question), "add --yes to say yes without a terminal")
	}
	line, err := s.ask(ctx, question+" [y/N]")
	if err != nil {
		return err
	}
	if line = strings.ToLower(line); line == "y" || line == "yes" {
		return nil
	}
	return &exitError{code: exitFailure, err: errors.New("nothing was done")}
}

// ask asks a question and returns the line that is typed. The end of the input is
// an empty one.
func (s *stdio) ask(ctx context.Context, question string) (string, error) {
	fmt.Fprint(s.err, prose(s.err, question), " ")
	answer := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(s.in).ReadString('\n')
		answer <- strings.TrimSpace(line)
	}()
	select {
	case <-ctx.Done():
		fmt.Fprintln(s.err)
		return "", ctx.Err()
	case line := <-answer:
		return line, nil
	}
}

// asks reports whether the program may ask questions: it has a terminal, and
// neither an option nor CI forbids it.
func (s *stdio) asks() bool {
	ci, _ := s.env.Lookup("CI")
	return !s.opts.noInput && (ci == "" || ci == "0" || ci == "false") && isTerminal(s.in) && s.err.Terminal
}

// input is standard input, as it is read for ctx: a signal ends the wait for what
// does not come.
func (s *stdio) input(ctx context.Context) io.Reader {
	r, w := io.Pipe()
	go func() {
		_, err := io.Copy(w, s.in)
		w.CloseWithError(err)
	}()
	context.AfterFunc(ctx, func() { w.CloseWithError(ctx.Err()) })
	return r
}
