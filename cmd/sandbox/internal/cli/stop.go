package cli

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/console"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/line"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/screen"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/units"
)

// atOnce is how many sandboxes are handled at the same time.
const atOnce = 8

// forEach calls do for each name, several at a time, and returns the errors in the order
// of the names.
func forEach[T any](names []string, do func(i int, name string) (T, error)) ([]T, []error) {
	results, errs := make([]T, len(names)), make([]error, len(names))
	slots := make(chan struct{}, atOnce)
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

// chosen returns the names of the sandboxes that the arguments or a selection select, and
// what a selection has found.
func (p *deps) chosen(ctx context.Context, cmd *cobra.Command, args []string, sel *selection) ([]string, []sandbox.Info, error) {
	if len(args) > 0 && sel.given() {
		return nil, nil, line.Usagef("give names or a selection, not both")
	}
	if sel.given() {
		found, err := p.find(ctx, sel)
		slices.SortFunc(found, func(x, y sandbox.Info) int { return strings.Compare(x.Name, y.Name) })
		return mapped(found, func(i sandbox.Info) string { return i.Name }), found, err
	}
	if len(args) == 0 {
		return nil, nil, &line.UsageError{Message: "no value provided for name", Hint: line.MoreAbout(cmd)}
	}
	for i, name := range args {
		resolved, err := p.account.CheckedName(name)
		if err != nil {
			return nil, nil, err
		}
		args[i] = resolved
	}
	return distinct(args), nil, nil
}

type stopCommand struct {
	deps

	sel selection
}

func (c *stopCommand) command() *line.Command {
	return &line.Command{
		Name: "stop", Near: []string{"pause", "down"}, First: true, Short: "Stop sandboxes",
		Long: "Stop sandboxes, by name or by property. Persistent ones keep their files; any command starts them again.",
		Args: []line.Argument{line.NameArg, line.MoreNames}, Check: cobra.ArbitraryArgs, Options: c.sel.define, Example: "stop my-app", Doc: []stopView{}, Run: c.run,
	}
}

func (c *stopCommand) run(cmd *cobra.Command, args []string) error {
	ctx := cmd.Context()
	if c.sel.given() && len(c.sel.statuses) == 0 {
		c.sel.statuses = []string{string(sandbox.StatusRunning)}
	}
	names, _, err := c.chosen(ctx, cmd, args, &c.sel)
	if err != nil {
		return err
	}
	if c.sel.given() && len(names) > 0 && c.screen.Asks() {
		if err := c.screen.Confirm(ctx, fmt.Sprintf("Stop %s: %s?", line.Plural(len(names), "sandbox", "sandboxes"), strings.Join(names, ", "))); err != nil {
			return err
		}
	}
	text := "Stopping " + line.Plural(len(names), "sandbox", "sandboxes")
	if len(names) == 1 {
		text = "Stopping " + names[0]
	}
	if _, err := c.account.Connect(cmd.Context()); err != nil {
		return err
	}
	spin := c.screen.Spin(text)
	type stopped struct {
		sb     *sandbox.Sandbox
		result *sandbox.StopResult
	}
	results, errs := forEach(names, func(_ int, name string) (stopped, error) {
		sb, err := c.account.Get(ctx, name, false)
		if err != nil {
			return stopped{}, err
		}
		result, err := sb.Stop(ctx, nil)
		return stopped{sb, result}, err
	})
	spin()
	views := []stopView{}
	for i, r := range results {
		if errs[i] != nil {
			c.screen.Failed(names[i]+": ", errs[i])
			continue
		}
		views = append(views, viewStop(names[i], r.result))
		if !c.screen.Opts.Structured() {
			c.printStopped(r.sb, r.result)
		}
	}
	if c.screen.Opts.Structured() {
		if err := c.screen.Print(screen.List(views, func(v stopView) string { return v.Name }, nil)); err != nil {
			return err
		}
	}
	return c.screen.FailAfter(errs)
}

type stopView struct {
	Name     string        `json:"name"`
	Session  sessionView   `json:"session"`
	Snapshot *snapshotView `json:"snapshot,omitempty"`
}

func viewStop(name string, r *sandbox.StopResult) stopView {
	v := stopView{Name: name, Session: viewSession(r.Session)}
	if r.Snapshot != nil {
		s := viewSnapshot(*r.Snapshot)
		v.Snapshot = &s
	}
	return v
}

// field is a label and a value in a line.
type field struct{ label, value string }

// printStopped shows the usage of a session and its sandbox.
func (c *stopCommand) printStopped(sb *sandbox.Sandbox, r *sandbox.StopResult) {
	fmt.Fprintf(c.screen.Err, "%s Sandbox %s stopped.\n", c.screen.Err.Paint(console.Green, "✔"), sb.Name())
	i, s := viewSandbox(sb.Info()), viewSession(r.Session)
	run := func(label string, ms int64) field {
		return field{label, units.Run(time.Duration(ms) * time.Millisecond)}
	}
	size := func(label string, n int64) field { return field{label, units.Bytes(n)} }
	rows := [][]field{
		{
			{"sandbox: ", i.Name}, run("active cpu: ", i.TotalActiveCPU), {"mem: ", fmt.Sprintf("%d MB", i.Memory)},
			run("duration: ", i.TotalDuration), size("ingress: ", i.TotalIngress), size("egress: ", i.TotalEgress),
		},
		{
			{"session: ", s.ID}, run("active cpu: ", s.ActiveCPU), {"mem: ", fmt.Sprintf("%d MB", s.Memory)},
			run("duration: ", s.Duration), size("ingress: ", s.Ingress), size("egress: ", s.Egress),
		},
	}
	if p := r.Snapshot; p != nil {
		expires := "never"
		if !p.ExpiresAt.IsZero() {
			expires = units.Distance(p.ExpiresAt, c.screen.Now())
		}
		rows = append(rows, []field{{"snapshot: ", p.ID}, {"size: ", units.Bytes(p.SizeBytes)}, {"expires: ", expires}})
	}
	c.screen.Tree(c.fieldLines(rows), func(s string) string { return c.screen.Err.Paint(console.Dim, s) })
}

// fieldLines lays rows of fields out in columns. Where the columns don't fit into the
// terminal, it breaks rows between fields.
func (c *stopCommand) fieldLines(rows [][]field) (lines []string) {
	const indent, gap = 5, 2
	widths := map[int]int{}
	for _, row := range rows {
		for column, f := range row {
			widths[column] = max(widths[column], len(f.label)+len(f.value))
		}
	}
	needed, room := indent-gap, math.MaxInt
	for _, w := range widths {
		needed += w + gap
	}
	if c.screen.Err.Terminal {
		room = c.screen.Err.Width()
	}
	for _, row := range rows {
		line, at := "", indent
		add := func(text string, width int) { line, at = line+text, at+width }
		for column, f := range row {
			width := len(f.label) + len(f.value)
			switch {
			case column == 0:
			case at+gap+width > room:
				lines = append(lines, line)
				line, at = "  ", indent+2
			case needed <= room:
				padding := widths[column-1] - len(row[column-1].label) - len(row[column-1].value) + gap
				add(strings.Repeat(" ", padding), padding)
			default:
				add("  ", gap)
			}
			add(f.label+c.screen.Err.Paint(console.Cyan, f.value), width)
		}
		lines = append(lines, line)
	}
	return lines
}

type removeCommand struct {
	deps

	sel     selection
	orphans bool
	force   bool
}

func (c *removeCommand) command() *line.Command {
	return &line.Command{
		Name: "remove", Aliases: []string{"rm"}, Near: []string{"delete", "del", "destroy", "terminate"}, First: true, Short: "Remove sandboxes for good",
		Long: "Remove sandboxes for good, by name or by property. Their snapshots remain, except with --delete-orphan-snapshots.",
		Args: []line.Argument{line.NameArg, line.MoreNames}, Check: cobra.ArbitraryArgs, Options: c.define, Example: "rm my-app", Doc: []string{}, Run: c.run,
	}
}

func (c *removeCommand) define(flags *pflag.FlagSet) {
	line.Toggle(flags, &c.orphans, "delete-orphan-snapshots", "", "Also delete snapshots of the sandbox that no other sandbox uses")
	c.sel.define(flags)
	line.Toggle(flags, &c.force, "force", "f", "Ignore sandboxes that do not exist, and ask no questions")
}

func (c *removeCommand) run(cmd *cobra.Command, args []string) error {
	ctx := cmd.Context()
	names, found, err := c.chosen(ctx, cmd, args, &c.sel)
	if err != nil {
		return err
	}
	if c.sel.given() && len(names) > 0 && !c.force {
		if err := c.screen.Confirm(ctx, fmt.Sprintf("Remove %s for good: %s?", line.Plural(len(names), "sandbox", "sandboxes"), strings.Join(names, ", "))); err != nil {
			return err
		}
	}
	if c.sel.given() {
		return c.removeFound(ctx, names, found)
	}
	if _, err := c.account.Connect(ctx); err != nil {
		return err
	}
	return c.tasks(names, "Removing sandbox ", func(name string) error {
		sb, err := c.account.Get(ctx, name, false)
		if err == nil {
			err = sb.Delete(ctx, &sandbox.DeleteOptions{DeleteOrphanSnapshots: c.orphans})
		}
		if c.force && errors.Is(err, sandbox.ErrNotFound) {
			return errNothing
		}
		return err
	})
}

// errInUse is the error for a sandbox that removeFound leaves alone.
var errInUse = &screen.ExitError{Code: screen.ExitConflict, Err: errors.New("it was used after it was found, so it was not removed")}

// errNothing is the result of a task without anything to do.
var errNothing = errors.New("nothing to do")

// tasks calls do for each name, prints each result to standard error, and writes the names
// of the changed objects to standard output.
func (p *deps) tasks(names []string, title string, do func(name string) error) error {
	tell := func(style console.Style, mark, name, result string) {
		fmt.Fprintf(p.screen.Err, "%s %s%s%s\n", p.screen.Err.Paint(style, mark), title, screen.Lines(name), screen.Lines(result))
	}
	stop := p.screen.SpinUnless(!p.screen.Err.Rewrites(), strings.TrimSpace(title)+"...") // elsewhere the results suffice
	_, errs := forEach(names, func(_ int, name string) (struct{}, error) { return struct{}{}, do(name) })
	stop()
	done := []string{}
	for i, n := range names {
		switch {
		case errors.Is(errs[i], errNothing):
			errs[i] = nil
			if !p.screen.Opts.Structured() {
				tell(console.Gray, "-", n, " (it does not exist)")
			}
		case errs[i] != nil:
			p.screen.Failed(strings.ToLower(title[:1])+title[1:]+n+": ", errs[i])
		default:
			done = append(done, n)
			if !p.screen.Opts.Structured() {
				tell(console.Green, "✔", n, "")
			}
		}
	}
	return errors.Join(p.screen.FailAfter(errs), p.screen.PrintDone(done))
}

// sameSandbox reports whether now is the sandbox that was found, and was not started
// since.
func sameSandbox(found, now sandbox.Info) bool {
	return found.Name == now.Name && found.CreatedAt.Equal(now.CreatedAt) && found.CurrentSessionID == now.CurrentSessionID
}

// removeFound removes sandboxes that a selection has found. It leaves a sandbox alone that
// no longer matches, or was started in the meantime, and reports that as an error.
func (c *removeCommand) removeFound(ctx context.Context, names []string, found []sandbox.Info) error {
	match := c.sel.matcher(c.pairs(c.sel.tags, "--tag"))
	return c.tasks(names, "Removing sandbox ", func(name string) error {
		sb, err := c.account.Get(ctx, name, false)
		if err != nil {
			return err
		}
		if now := sb.Info(); !sameSandbox(found[slices.Index(names, name)], now) || !match(now) {
			return errInUse
		}
		return sb.Delete(ctx, &sandbox.DeleteOptions{DeleteOrphanSnapshots: c.orphans})
	})
}
