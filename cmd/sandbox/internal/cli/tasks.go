package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/console"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/line"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/screen"
)

// maxConcurrent is the maximum number of sandboxes that a command works on at the same
// time.
const maxConcurrent = 8

// forEach calls do for each name, several at a time. It returns the results and the errors
// in the order of the names.
func forEach[T any](names []string, do func(i int, name string) (T, error)) ([]T, []error) {
	results, errs := make([]T, len(names)), make([]error, len(names))
	slots := make(chan struct{}, maxConcurrent)
	var wg sync.WaitGroup
	for i, name := range names {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			results[i], errs[i] = do(i, name)
		})
	}
	wg.Wait()
	return results, errs
}

// distinct removes duplicates.
func distinct(names []string) []string {
	var out []string
	for _, n := range names {
		if !slices.Contains(out, n) {
			out = append(out, n)
		}
	}
	return out
}

// chosenNames returns the names of the sandboxes that the arguments or a selection select.
// For a selection, it also returns the sandboxes as they were listed.
func (p *deps) chosenNames(ctx context.Context, cmd *cobra.Command, args []string, sel *selection) ([]string, []sandbox.Info, error) {
	if len(args) > 0 && sel.given() {
		return nil, nil, line.Usagef("give names or a selection, not both")
	}
	if sel.given() {
		found, err := p.findSelected(ctx, sel)
		slices.SortFunc(found, func(x, y sandbox.Info) int { return strings.Compare(x.Name, y.Name) })
		return mapped(found, func(i sandbox.Info) string { return i.Name }), found, err
	}
	if len(args) == 0 {
		return nil, nil, &line.UsageError{Message: "no value provided for name", Hint: line.MoreAbout(cmd)}
	}
	for _, name := range args {
		if err := p.account.CheckName(name); err != nil {
			return nil, nil, err
		}
	}
	return distinct(args), nil, nil
}

// errNothingToDo is the result of a task that had nothing to do. It does not make the
// command fail.
var errNothingToDo = errors.New("nothing to do")

// runTasks calls do for each name, prints each result to standard error, and writes the
// names of the changed objects to standard output.
func (p *deps) runTasks(names []string, title string, do func(name string) error) error {
	printResult := func(style console.Style, mark, name, result string) {
		fmt.Fprintf(p.screen.Err, "%s %s%s%s\n", p.screen.Err.Paint(style, mark), title, screen.Lines(name), screen.Lines(result))
	}
	stop := p.screen.SpinUnless(!p.screen.Err.Rewrites(), strings.TrimSpace(title)+"...") // where the spinner can't be overwritten, the results are enough
	_, errs := forEach(names, func(_ int, name string) (struct{}, error) { return struct{}{}, do(name) })
	stop()
	done := []string{}
	for i, n := range names {
		switch {
		case errors.Is(errs[i], errNothingToDo):
			errs[i] = nil
			if !p.screen.Opts.Structured() {
				printResult(console.Gray, "-", n, " (it does not exist)")
			}
		case errs[i] != nil:
			p.screen.Failed(strings.ToLower(title[:1])+title[1:]+n+": ", errs[i])
		default:
			done = append(done, n)
			if !p.screen.Opts.Structured() {
				printResult(console.Green, "✔", n, "")
			}
		}
	}
	return errors.Join(p.screen.FailAfter(errs), p.screen.PrintDone(done))
}
