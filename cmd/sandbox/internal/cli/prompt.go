package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/go-vercel/sandbox/cmd/sandbox/internal/settings"
)

// confirm asks a yes-or-no question. Without a terminal, --yes must be given.
func (a *app) confirm(ctx context.Context, question string) error {
	if a.opts.yes {
		return nil
	}
	if !a.asks() {
		return withHint(usagef("%s", question), "add --yes to say yes without a terminal")
	}
	fmt.Fprintf(a.err, "%s [y/N] ", lines(question))
	answer := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(a.in).ReadString('\n') // the end of the input says no
		answer <- strings.ToLower(strings.TrimSpace(line))
	}()
	select {
	case <-ctx.Done():
		fmt.Fprintln(a.err)
		return ctx.Err()
	case line := <-answer:
		if line == "y" || line == "yes" {
			return nil
		}
	}
	return &exitError{code: exitFailure, err: errors.New("nothing was done")}
}

func (a *app) dirs() (settings.Dirs, error) { return settings.FindDirs(a.env.lookup) }
