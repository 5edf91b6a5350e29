package cli

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/table"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/units"
	"github.com/go-vercel/sandbox/internal/own"
	"github.com/go-vercel/sandbox/outputs"
)

// usageScript reads what a machine uses: its processors twice, a moment apart,
// its memory, its network and its load.
const usageScript = `head -1 /proc/stat; sleep 0.2; head -1 /proc/stat; grep -E '^Mem(Total|Available):' /proc/meminfo; cut -d' ' -f1 /proc/loadavg; cat /proc/net/dev`

// maxUsage is how much that is at most: a line for each network interface.
const maxUsage = 256 << 10

// usage is what a running sandbox uses.
type usage struct {
	Name        string     `json:"name"`
	CPU         float64    `json:"cpuPercent"`
	Load        float64    `json:"load"`
	MemoryUsed  int64      `json:"memoryUsedBytes"`
	MemoryTotal int64      `json:"memoryTotalBytes"`
	Sent        int64      `json:"sentBytes"`
	Received    int64      `json:"receivedBytes"`
	VCPUs       int        `json:"vcpus"`
	ExpiresAt   *time.Time `json:"expiresAt"`
	Error       string     `json:"error,omitempty"`
}

type topCommand struct {
	app *app

	sel   selection
	once  bool
	every time.Duration
}

func (c *topCommand) command() *cobra.Command {
	cmd := &cobra.Command{
		Use: "top [name...]", Aliases: []string{"stats"}, Short: "Show what the running sandboxes use", GroupID: groupManage,
		Args: cobra.ArbitraryArgs,
		Long: "Show the processors, memory and network that the running sandboxes use, and the time that is left. " +
			"Each look runs a small command in each of them. At a terminal it goes on until Ctrl-C.",
	}
	c.sel.define(cmd.Flags())
	toggle(cmd.Flags(), &c.once, "once", "", "Look once, as when standard output is not a terminal")
	option(cmd.Flags(), &c.every, "interval", "", "duration", "2s", "How long to wait between looks", parseDuration)
	cmd.RunE = c.run
	return cmd
}

func (c *topCommand) run(cmd *cobra.Command, args []string) error {
	show := func() error {
		found, err := c.measured(cmd.Context(), args, &c.sel)
		if err != nil {
			return err
		}
		ans := list(found, func(u usage) string { return u.Name }, c.usageTable)
		ans.empty = "No sandboxes are running."
		return c.app.print(ans)
	}
	if c.once || !c.app.out.Terminal || c.app.opts.structured() {
		return show()
	}
	return c.app.repeat(cmd.Context(), c.every, show)
}

func (c *topCommand) measured(ctx context.Context, names []string, sel *selection) ([]usage, error) {
	named := len(names) > 0
	if !named {
		sel.statuses = []string{string(sandbox.StatusRunning)}
		found, err := c.app.find(ctx, sel)
		if err != nil {
			return nil, err
		}
		names = mapped(found, func(i sandbox.Info) string { return i.Name })
	}
	if _, err := c.app.connect(ctx); err != nil {
		return nil, err
	}
	results, errs := forEach(names, func(_ int, name string) (usage, error) { return c.measure(ctx, name) })
	for i, err := range errs {
		if err != nil {
			results[i] = usage{Name: names[i], Error: c.app.explain(err).Message}
		}
	}
	if ctx.Err() == nil && named && !slices.Contains(errs, nil) {
		return nil, errs[0] // there is nothing to look at
	}
	return results, ctx.Err()
}

func (c *topCommand) measure(ctx context.Context, name string) (usage, error) {
	sb, err := c.app.get(ctx, name, false)
	if err != nil {
		return usage{}, err
	}
	if sb.Status() != sandbox.StatusRunning {
		return usage{}, &exitError{code: exitConflict, err: fmt.Errorf("sandbox %s is not running (%s)", name, sb.Status())}
	}
	var out strings.Builder
	result, err := own.Run(ctx, sb.CurrentSession(), &sandbox.CommandOptions{Stdout: outputs.Limit(&out, maxUsage), KillOnCancel: true}, "sh", "-c", usageScript)
	if err != nil {
		return usage{}, err
	}
	if result.ExitCode != 0 {
		return usage{}, fmt.Errorf("looking at /proc failed with exit code %d", result.ExitCode)
	}
	u := parseUsage(out.String())
	u.Name, u.VCPUs, u.ExpiresAt = name, sb.Info().VCPUs, moment(sb.ExpiresAt())
	return u, nil
}

// parseUsage reads what usageScript writes. What is not there stays zero.
func parseUsage(text string) usage {
	var u usage
	var busy, total []int64
	number := func(s string) int64 { n, _ := strconv.ParseInt(s, 10, 64); return n }
	for line := range strings.Lines(text) {
		f := strings.Fields(strings.ReplaceAll(line, ":", " "))
		switch {
		case len(f) > 5 && f[0] == "cpu":
			var sum int64
			for _, s := range f[1:] {
				sum += number(s)
			}
			total = append(total, sum)
			busy = append(busy, sum-number(f[4])-number(f[5])) // without idle and iowait
		case len(f) > 1 && f[0] == "MemTotal":
			u.MemoryTotal = number(f[1]) << 10
		case len(f) > 1 && f[0] == "MemAvailable":
			u.MemoryUsed = u.MemoryTotal - number(f[1])<<10
		case len(f) == 17 && f[0] != "lo":
			u.Received += number(f[1])
			u.Sent += number(f[9])
		case len(f) == 1:
			u.Load, _ = strconv.ParseFloat(f[0], 64)
		}
	}
	if len(total) == 2 && total[1] > total[0] {
		u.CPU = 100 * float64(busy[1]-busy[0]) / float64(total[1]-total[0])
	}
	return u
}

func (c *topCommand) usageTable(found []usage) *table.Table {
	t := table.New("NAME", "CPU", "VCPUS", "LOAD", "MEMORY", "NETWORK (OUT/IN)", "ENDS")
	t.Least = []string{"VCPUS", "LOAD", "NETWORK (OUT/IN)", "CPU"}
	now := c.app.now()
	for _, u := range found {
		if u.Error != "" {
			t.Row(u.Name, "-", "-", "-", "-", "-", u.Error)
			continue
		}
		t.Row(u.Name, fmt.Sprintf("%.0f%%", u.CPU), number(u.VCPUs), fmt.Sprintf("%.2f", u.Load),
			units.Bytes(u.MemoryUsed)+" / "+units.Bytes(u.MemoryTotal), networkText(u.Sent, u.Received), distance(u.ExpiresAt, now))
	}
	return t
}
