package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/console"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/units"
)

// atOnce is how many sandboxes are worked on at the same time.
const atOnce = 8

// forEach does something to each of several, some at the same time, and returns
// the errors in the order of the names.
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

// distinct drops what comes again.
func distinct(names []string) []string {
	var out []string
	for _, n := range names {
		if !slices.Contains(out, n) {
			out = append(out, n)
		}
	}
	return out
}

// chosen are the names of the sandboxes that arguments or a selection mean, and
// what a selection has found.
func (p *place) chosen(ctx context.Context, cmd *cobra.Command, args []string, sel *selection) ([]string, []sandbox.Info, error) {
	if len(args) > 0 && sel.given() {
		return nil, nil, usagef("give names or a selection, not both")
	}
	if sel.given() {
		found, err := p.find(ctx, sel)
		slices.SortFunc(found, func(x, y sandbox.Info) int { return strings.Compare(x.Name, y.Name) })
		return mapped(found, func(i sandbox.Info) string { return i.Name }), found, err
	}
	if len(args) == 0 {
		return nil, nil, &usageError{message: "no value provided for name", hint: moreAbout(cmd)}
	}
	for i, name := range args {
		resolved, err := p.account.checkedName(name)
		if err != nil {
			return nil, nil, err
		}
		args[i] = resolved
	}
	return distinct(args), nil, nil
}

type stopCommand struct {
	place

	sel selection
}

func (c *stopCommand) command() *command {
	return &command{
		name: "stop", near: []string{"pause", "down"}, first: true, short: "Stop sandboxes",
		long: "Stop sandboxes, by name or by property. Persistent ones keep their files; any command starts them again.",
		args: []argument{nameArg, moreNames}, check: cobra.ArbitraryArgs, options: c.sel.define, example: "stop my-app", doc: []stopView{}, run: c.run,
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
	if c.sel.given() && len(names) > 0 && c.screen.asks() {
		if err := c.screen.confirm(ctx, fmt.Sprintf("Stop %s: %s?", plural(len(names), "sandbox", "sandboxes"), strings.Join(names, ", "))); err != nil {
			return err
		}
	}
	text := "Stopping " + plural(len(names), "sandbox", "sandboxes")
	if len(names) == 1 {
		text = "Stopping " + names[0]
	}
	if _, err := c.account.connect(cmd.Context()); err != nil {
		return err
	}
	spin := c.screen.spin(text)
	type stopped struct {
		sb     *sandbox.Sandbox
		result *sandbox.StopResult
	}
	results, errs := forEach(names, func(_ int, name string) (stopped, error) {
		sb, err := c.account.get(ctx, name, false)
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
			c.screen.failed(names[i]+": ", errs[i])
			continue
		}
		views = append(views, viewStop(names[i], r.result))
		if !c.screen.opts.structured() {
			c.tellStopped(r.sb, r.result)
		}
	}
	if c.screen.opts.structured() {
		if err := c.screen.print(list(views, func(v stopView) string { return v.Name }, nil)); err != nil {
			return err
		}
	}
	return c.screen.failAfter(errs)
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

// field is a label and a value of a line.
type field struct{ label, value string }

// tellStopped shows what a session and its sandbox have used.
func (c *stopCommand) tellStopped(sb *sandbox.Sandbox, r *sandbox.StopResult) {
	fmt.Fprintf(c.screen.err, "%s Sandbox %s stopped.\n", c.screen.err.Paint(console.Green, "✔"), sb.Name())
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
			expires = units.Distance(p.ExpiresAt, c.screen.now())
		}
		rows = append(rows, []field{{"snapshot: ", p.ID}, {"size: ", units.Bytes(p.SizeBytes)}, {"expires: ", expires}})
	}
	widths := map[int]int{}
	for _, row := range rows {
		for column, f := range row {
			widths[column] = max(widths[column], len(f.label)+len(f.value))
		}
	}
	var lines []string
	for _, row := range rows {
		var b strings.Builder
		for column, f := range row {
			b.WriteString(f.label + c.screen.err.Paint(console.Cyan, f.value) + strings.Repeat(" ", widths[column]-len(f.label)-len(f.value)+2))
		}
		lines = append(lines, strings.TrimRight(b.String(), " "))
	}
	c.screen.tree(lines, func(s string) string { return c.screen.err.Paint(console.Dim, s) })
}

type removeCommand struct {
	place

	sel     selection
	orphans bool
	force   bool
}

func (c *removeCommand) command() *command {
	return &command{
		name: "remove", aliases: []string{"rm"}, near: []string{"delete", "del", "destroy", "terminate"}, first: true, short: "Remove sandboxes for good",
		long: "Remove sandboxes for good, by name or by property. Their snapshots live on unless --delete-orphan-snapshots says otherwise.",
		args: []argument{nameArg, moreNames}, check: cobra.ArbitraryArgs, options: c.define, example: "rm my-app", doc: []string{}, run: c.run,
	}
}

func (c *removeCommand) define(flags *pflag.FlagSet) {
	toggle(flags, &c.orphans, "delete-orphan-snapshots", "", "Also delete snapshots of the sandbox that no other sandbox uses")
	c.sel.define(flags)
	toggle(flags, &c.force, "force", "f", "Ignore sandboxes that do not exist, and ask no questions")
}

func (c *removeCommand) run(cmd *cobra.Command, args []string) error {
	ctx := cmd.Context()
	names, found, err := c.chosen(ctx, cmd, args, &c.sel)
	if err != nil {
		return err
	}
	if c.sel.given() && len(names) > 0 && !c.force {
		if err := c.screen.confirm(ctx, fmt.Sprintf("Remove %s for good: %s?", plural(len(names), "sandbox", "sandboxes"), strings.Join(names, ", "))); err != nil {
			return err
		}
	}
	if c.sel.given() {
		removed, err := c.removeFound(ctx, found, &c.sel, c.orphans)
		return errors.Join(err, c.screen.printDone(mapped(removed, func(i sandbox.Info) string { return i.Name })))
	}
	if _, err := c.account.connect(ctx); err != nil {
		return err
	}
	return c.tasks(names, "Removing sandbox ", func(name string) error {
		sb, err := c.account.get(ctx, name, false)
		if err == nil {
			err = sb.Delete(ctx, &sandbox.DeleteOptions{DeleteOrphanSnapshots: c.orphans})
		}
		if c.force && errors.Is(err, sandbox.ErrNotFound) {
			return errNothing
		}
		return err
	})
}

// errInUse is why something that was to be removed is left alone.
var errInUse = &exitError{code: exitConflict, err: errors.New("it has been used since it was found, and is left alone")}

// errNothing is the result of a task that had nothing to do.
var errNothing = errors.New("nothing to do")

// tasks does something to each of several, tells of each how it went on standard
// error, and writes the names of those that it was done to to standard output.
func (p *place) tasks(names []string, title string, do func(name string) error) error {
	done, err := p.each(names, title, do)
	return errors.Join(err, p.screen.printDone(done))
}

// each does what tasks does, and returns the names.
func (p *place) each(names []string, title string, do func(name string) error) (done []string, err error) {
	tell := func(style console.Style, mark, name, result string) {
		fmt.Fprintf(p.screen.err, "%s %s%s%s\n", p.screen.err.Paint(style, mark), title, lines(name), lines(result))
	}
	stop := p.screen.spinUnless(!p.screen.err.Rewrites(), strings.TrimSpace(title)+"...") // elsewhere, what was done is enough
	_, errs := forEach(names, func(_ int, name string) (struct{}, error) { return struct{}{}, do(name) })
	stop()
	done = []string{}
	for i, n := range names {
		switch {
		case errors.Is(errs[i], errNothing):
			errs[i] = nil
			if !p.screen.opts.structured() {
				tell(console.Gray, "-", n, " (it does not exist)")
			}
		case errs[i] != nil:
			p.screen.failed(strings.ToLower(title[:1])+title[1:]+n+": ", errs[i])
		default:
			done = append(done, n)
			if !p.screen.opts.structured() {
				tell(console.Green, "✔", n, "")
			}
		}
	}
	return done, p.screen.failAfter(errs)
}

// sameSandbox reports whether a sandbox is the one that was found, and has not
// been started since.
func sameSandbox(found, now sandbox.Info) bool {
	return found.Name == now.Name && found.CreatedAt.Equal(now.CreatedAt) && found.CurrentSessionID == now.CurrentSessionID
}

// removeFound removes sandboxes that a selection has found, and returns those
// that are gone. What is no longer selected, or has been started since, is
// left alone, which is an error.
func (p *place) removeFound(ctx context.Context, found []sandbox.Info, sel *selection, orphans bool) ([]sandbox.Info, error) {
	match := sel.matcher(p.pairs(sel.tags, "--tag"))
	gone := make([]bool, len(found))
	names := mapped(found, func(i sandbox.Info) string { return i.Name })
	_, err := p.each(names, "Removing sandbox ", func(name string) error {
		i := slices.Index(names, name)
		sb, err := p.account.get(ctx, name, false)
		if err != nil {
			return err
		}
		if now := sb.Info(); !sameSandbox(found[i], now) || !match(now) {
			return errInUse
		}
		if err := sb.Delete(ctx, &sandbox.DeleteOptions{DeleteOrphanSnapshots: orphans}); err != nil {
			return err
		}
		gone[i] = true
		return nil
	})
	var removed []sandbox.Info
	for i, f := range found {
		if gone[i] {
			removed = append(removed, f)
		}
	}
	return removed, err
}
