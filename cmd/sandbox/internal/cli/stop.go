package cli

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/console"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/line"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/screen"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/units"
)

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
	names, _, err := c.chosenNames(ctx, cmd, args, &c.sel)
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
			run("duration: ", s.Duration), size("ingress: ", s.NetworkTransfer.Ingress), size("egress: ", s.NetworkTransfer.Egress),
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

// fieldLines arranges rows of fields in columns. If the columns don't fit into the
// terminal, it breaks rows between fields instead.
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
