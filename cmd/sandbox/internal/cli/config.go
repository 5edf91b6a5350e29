package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/console"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/line"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/screen"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/table"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/units"
	"github.com/go-vercel/sandbox/internal/wire"
)

// setting is a subcommand of config with one value.
type setting struct {
	name, kind, short string
	text, sample      string   // a description of the value, and an example
	values            []string // values that completions offer
	alias             []string
	// change returns the update and its description. keep is the sandbox's retention
	// policy, if any.
	change func(keep *sandbox.KeepLastSnapshots, text string) (*sandbox.UpdateOptions, string, error)
	// check returns an error for an invalid value. It makes no request.
	check func(text string) error
}

var errNoPolicy = errors.New("no keep-last-snapshots policy is set on this sandbox")

// requirePolicy returns a copy of a sandbox's retention policy, or errNoPolicy if there is
// none.
func requirePolicy(present *sandbox.KeepLastSnapshots) (sandbox.KeepLastSnapshots, error) {
	if present != nil {
		return *present, nil
	}
	return sandbox.KeepLastSnapshots{}, errNoPolicy
}

func noneIfZero(text string) string {
	if d, err := line.ParseExpiration(text); err == nil && d == 0 {
		return "none"
	}
	return text
}

// configSettings are the settings with one value, in the order of the help page.
var configSettings = []setting{
	{
		name: "vcpus", text: "A number, which is 1 or even", sample: "4", values: []string{"1", "2", "4", "8", "16", "32"}, kind: "COUNT", short: "Set the number of vCPUs", check: line.Checked(line.ParseVCPUs),
		change: func(_ *sandbox.KeepLastSnapshots, s string) (*sandbox.UpdateOptions, string, error) {
			n, err := line.ParseVCPUs(s)
			return &sandbox.UpdateOptions{VCPUs: n}, s, err
		},
	},
	{
		name: "timeout", text: "A duration, such as 30m or 1h30m", sample: "30m", kind: "num UNIT", short: "Set how long sessions run at most; a longer one also extends the running session", check: line.Checked(line.ParseTimeout),
		change: func(_ *sandbox.KeepLastSnapshots, s string) (*sandbox.UpdateOptions, string, error) {
			d, err := line.ParseTimeout(s)
			return &sandbox.UpdateOptions{Timeout: d}, s, err
		},
	},
	{
		name: "persistent", text: "true or false", sample: "false", values: []string{"true", "false"}, kind: "true|false", short: "Say whether files are kept from one session to the next", check: line.Checked(line.ParseBool),
		change: func(_ *sandbox.KeepLastSnapshots, s string) (*sandbox.UpdateOptions, string, error) {
			b, err := line.ParseBool(s)
			return &sandbox.UpdateOptions{Persistent: &b}, s, err
		},
	},
	{
		name: "region", text: "A region, such as sfo1", sample: "sfo1", values: wire.Regions, kind: "REGION", short: "Set the region of new sessions", check: line.Checked(line.ParseRegion),
		change: func(_ *sandbox.KeepLastSnapshots, s string) (*sandbox.UpdateOptions, string, error) {
			region, err := line.ParseRegion(s)
			return &sandbox.UpdateOptions{Region: region}, region, err
		},
	},
	{
		name: "failover-regions", text: "Regions, divided by commas", sample: "sfo1,fra1", values: wire.Regions, kind: "REGION,...|none", short: "Set the regions to run in when the first one fails", check: line.Checked(line.ParseRegions),
		change: func(_ *sandbox.KeepLastSnapshots, s string) (*sandbox.UpdateOptions, string, error) {
			regions, err := line.ParseRegions(s)
			return &sandbox.UpdateOptions{FailoverRegions: regions}, cmp.Or(strings.Join(regions, ", "), "none"), err
		},
	},
	{
		name: "network-id", text: "The ID of the network", sample: "net_0123", values: []string{"none"}, alias: []string{"network"}, kind: "NETWORK_ID|none", short: "Set the private network of Secure Compute", check: line.Checked(line.ParseNetworkID),
		change: func(_ *sandbox.KeepLastSnapshots, s string) (*sandbox.UpdateOptions, string, error) {
			id, err := line.ParseNetworkID(s)
			if id == "none" {
				return &sandbox.UpdateOptions{NetworkID: new(string)}, "cleared", err
			}
			return &sandbox.UpdateOptions{NetworkID: &id}, id, err
		},
	},
	{
		name: "snapshot-expiration", text: "A duration, such as 7d", sample: "7d", values: []string{"none"}, kind: "DURATION|none", short: "Set how long snapshots are kept by default", check: line.Checked(line.ParseExpiration),
		change: func(_ *sandbox.KeepLastSnapshots, s string) (*sandbox.UpdateOptions, string, error) {
			d, err := line.ParseExpiration(s)
			return &sandbox.UpdateOptions{SnapshotExpiration: keptFor(&d)}, noneIfZero(s), err
		},
	},
	{
		name: "keep-last-snapshots", text: "A number from 1 to 10; 0 keeps all", sample: "3", kind: "COUNT", short: "Keep only the COUNT most recent snapshots; 0 keeps all",
		check: line.Checked(line.ParseBetween(0, 10, "count")),
		change: func(present *sandbox.KeepLastSnapshots, s string) (*sandbox.UpdateOptions, string, error) {
			n, err := strconv.Atoi(s)
			if err != nil || n == 0 {
				return &sandbox.UpdateOptions{KeepLastSnapshots: &sandbox.KeepLastSnapshots{}}, "cleared", err
			}
			keep := *cmp.Or(present, new(sandbox.KeepLastSnapshots))
			keep.Count = n
			return &sandbox.UpdateOptions{KeepLastSnapshots: &keep}, "count=" + s, nil
		},
	},
	{
		name: "keep-last-snapshots-for", text: "A duration, such as 7d", sample: "7d", values: []string{"none"}, kind: "DURATION|none", short: "Set how long the kept snapshots live", check: line.Checked(line.ParseExpiration),
		change: func(present *sandbox.KeepLastSnapshots, s string) (*sandbox.UpdateOptions, string, error) {
			keep, err := requirePolicy(present)
			if err != nil {
				return nil, "", err
			}
			d, err := line.ParseExpiration(s)
			keep.Expiration = keptFor(&d)
			return &sandbox.UpdateOptions{KeepLastSnapshots: &keep}, noneIfZero(s), err
		},
	},
	{
		name: "delete-evicted-snapshots", text: "true or false", sample: "true", values: []string{"true", "false"}, kind: "true|false", check: line.Checked(line.ParseBool),
		short: "Say whether snapshots that are no longer kept are deleted at once or keep their expiration",
		change: func(present *sandbox.KeepLastSnapshots, s string) (*sandbox.UpdateOptions, string, error) {
			keep, err := requirePolicy(present)
			if err != nil {
				return nil, "", err
			}
			b, err := line.ParseBool(s)
			keep.KeepEvicted = !b
			return &sandbox.UpdateOptions{KeepLastSnapshots: &keep}, s, err
		},
	},
	{
		name: "current-snapshot", text: "The ID of a snapshot, which begins with snap_", sample: "snap_0123", kind: "snapshot_id", short: "Set the snapshot that the next session starts from", check: line.Checked(line.ParseSnapshotID),
		change: func(_ *sandbox.KeepLastSnapshots, s string) (*sandbox.UpdateOptions, string, error) {
			return &sandbox.UpdateOptions{CurrentSnapshotID: s}, s, nil
		},
	},
}

type configCommand struct{ deps }

func (c *configCommand) command() *line.Command {
	config := &line.Command{Name: "config", Near: []string{"set", "update"}, First: true, Short: "Show and change the settings of a sandbox"}
	config.Sub = append(config.Sub, (&configListCommand{deps: c.deps}).command())
	for _, s := range configSettings {
		config.Sub = append(config.Sub, c.settingCommand(&s))
	}
	config.Sub = append(config.Sub, describe(
		&configMountsCommand{deps: c.deps}, &configPolicyCommand{deps: c.deps}, &configPortsCommand{deps: c.deps}, &configTagsCommand{deps: c.deps}, &policyCommand{deps: c.deps},
	)...)
	return config
}

func (c *configCommand) settingCommand(s *setting) *line.Command {
	return &line.Command{
		Name: s.name, Aliases: s.alias, Short: s.short, Example: "config " + s.name + " my-app " + s.sample, Doc: sandboxView{},
		Args: []line.Argument{line.NameArg, {Name: s.kind, Text: s.text, Parse: s.check, Values: s.values}},
		Run: func(cmd *cobra.Command, args []string) error {
			return c.update(cmd.Context(), args[0], "configuration", func(sb *sandbox.Sandbox) (*sandbox.UpdateOptions, func(*sandbox.Sandbox) []string, error) {
				o, shown, err := s.change(sb.Info().KeepLastSnapshots, args[1])
				if errors.Is(err, errNoPolicy) {
					err = screen.WithHint(err, "set a count first with: %s", screen.Try("config keep-last-snapshots %s COUNT", sb.Name()))
				}
				return o, func(*sandbox.Sandbox) []string {
					return []string{s.name + ": " + c.screen.Err.Paint(console.Cyan, shown)}
				}, err
			})
		},
	}
}

// replace replaces a list of a sandbox, such as its tags. A command line without values
// clears the list. Because the user may have wanted to see the list instead, replace asks
// for confirmation at a terminal.
func (p *deps) replace(ctx context.Context, name, what string, clears bool, count func(sandboxView) int, o *sandbox.UpdateOptions, lines func(*sandbox.Sandbox) []string) error {
	return p.update(ctx, name, what, func(sb *sandbox.Sandbox) (*sandbox.UpdateOptions, func(*sandbox.Sandbox) []string, error) {
		if n := count(viewHandle(sb)); clears && n > 0 && p.screen.Asks() {
			if err := p.screen.Confirm(ctx, fmt.Sprintf("Remove all %s of %s (%d)?", what, sb.Name(), n)); err != nil {
				return nil, nil, err
			}
		}
		return o, lines, nil
	})
}

// update changes a sandbox and prints the result.
func (p *deps) update(ctx context.Context, name, what string,
	change func(*sandbox.Sandbox) (o *sandbox.UpdateOptions, lines func(*sandbox.Sandbox) []string, err error),
) error {
	sb, err := p.account.Named(ctx, name, false)
	if err != nil {
		return err
	}
	o, lines, err := change(sb)
	if err != nil {
		return err
	}
	title := what
	if what == "configuration" || what == "ports" || what == "tags" || what == "mounts" {
		title = "sandbox " + what
	}
	stop := p.screen.Spin("Updating " + title + "...")
	err = sb.Update(ctx, o)
	stop()
	if err != nil {
		return err
	}
	if p.screen.Opts.Structured() {
		return p.screen.Print(screen.Output{Doc: viewHandle(sb), Names: []string{sb.Name()}})
	}
	fmt.Fprintf(p.screen.Err, "✅ %s updated for sandbox %s\n", strings.ToUpper(what[:1])+what[1:], p.screen.Err.Paint(console.Cyan, sb.Name()))
	p.screen.Tree(lines(sb), func(s string) string { return p.screen.Err.Paint(console.Dim, s) })
	return nil
}

type configListCommand struct{ deps }

func (c *configListCommand) command() *line.Command {
	return &line.Command{
		Name: "list", Near: []string{"get", "status"}, Short: "Show the settings of a sandbox", Args: []line.Argument{line.NameArg}, Example: "config list my-app", Doc: sandboxView{}, Run: c.run,
	}
}

func (c *configListCommand) run(cmd *cobra.Command, args []string) error {
	if err := c.account.CheckName(args[0]); err != nil {
		return err
	}
	if _, err := c.account.Connect(cmd.Context()); err != nil {
		return err
	}
	stop := c.screen.Spin("Fetching sandbox configuration...")
	sb, err := c.account.Get(cmd.Context(), args[0], false)
	stop()
	if err != nil {
		return err
	}
	v := viewHandle(sb)
	return c.screen.Print(screen.Output{Doc: v, Names: []string{v.Name}, Table: func() *table.Table { return configTable(v) }})
}

func configTable(v sandboxView) *table.Table {
	t := table.New("FIELD", "VALUE")
	t.Breaks = true
	row := func(name, value string) { t.Row(table.Cell{Text: name, Style: console.Bold}, value) }
	row("Region", orDash(v.Region))
	row("Failover regions", orDash(strings.Join(v.FailoverRegions, ", ")))
	row("Secure Compute network", orDash(v.NetworkID))
	row("vCPUs", numberOrDash(v.VCPUs, strconv.Itoa))
	row("Timeout", units.Long(time.Duration(v.Timeout)*time.Millisecond))
	row("Persistent", strconv.FormatBool(v.Persistent))
	row("Network policy", policyText(v.NetworkPolicy))
	row("Ports", orDash(strings.Join(mapped(v.Routes, func(r routeView) string { return strconv.Itoa(r.Port) }), ", ")))
	row("Snapshot expiration", expirationText(v.SnapshotExpiration))
	row("Keep last snapshots", keepText(v.KeepLastSnapshots))
	row("Current snapshot", orDash(v.CurrentSnapshotID))
	row("Tags", tagsText(v.Tags, "="))
	row("Mounts", mountsText(v.Mounts))
	return t
}

func policyText(p *policyView) string {
	switch {
	case p == nil:
		return string(sandbox.PolicyAllowAll) // the default
	case p.Mode == customMode:
		return "restricted"
	}
	return p.Mode
}

func expirationText(ms *int64) string {
	switch {
	case ms == nil:
		return "-"
	case *ms == 0:
		return "none"
	}
	return units.Long(time.Duration(*ms) * time.Millisecond)
}

func keepText(k *keepView) string {
	if k == nil {
		return "-"
	}
	text := "count=" + strconv.Itoa(k.Count)
	if k.Expiration != nil {
		text += ", for=" + expirationText(k.Expiration)
	}
	if k.DeleteEvicted != nil {
		text += ", delete-evicted-snapshots=" + strconv.FormatBool(*k.DeleteEvicted)
	}
	return text
}

type configMountsCommand struct {
	deps

	mounts []line.Mount
}

func (c *configMountsCommand) command() *line.Command {
	return &line.Command{
		Name: "mounts", Short: "Set the drives of new sessions; without --mount, remove them all", Args: []line.Argument{line.NameArg},
		Options: func(flags *pflag.FlagSet) {
			line.Options(flags, &c.mounts, "mount", "", "drive:path[:mode]", "Attach a drive at a path; the mode is snapshot or read-write (repeatable)", line.ParseMount)
		},
		Example: "config mounts my-app --mount cache:/data", Doc: sandboxView{}, Run: c.run,
	}
}

func (c *configMountsCommand) run(cmd *cobra.Command, args []string) error {
	mounts := mountsOf(c.mounts)
	if mounts == nil {
		mounts = map[string]sandbox.Mount{}
	}
	return c.replace(cmd.Context(), args[0], "mounts", len(mounts) == 0, func(v sandboxView) int { return len(v.Mounts) }, &sandbox.UpdateOptions{Mounts: mounts}, func(*sandbox.Sandbox) []string {
		if len(mounts) == 0 {
			return []string{"all mounts removed"}
		}
		return mapped(c.mounts, func(m line.Mount) string { return m.Drive + " -> " + m.Path + " (" + m.Mode + ")" })
	})
}

// mountsOf converts the mounts from the command line to the SDK's type.
func mountsOf(mounts []line.Mount) map[string]sandbox.Mount {
	var m map[string]sandbox.Mount
	for _, it := range mounts {
		if m == nil {
			m = map[string]sandbox.Mount{}
		}
		m[it.Path] = sandbox.Mount{Drive: it.Drive, Mode: sandbox.MountMode(it.Mode)}
	}
	return m
}

type configPolicyCommand struct {
	deps

	p    policyOptions
	mode string
}

func (c *configPolicyCommand) command() *line.Command {
	return &line.Command{
		Name: "network-policy", Short: "Set what a sandbox can reach, in this session and in later ones", Args: []line.Argument{line.NameArg},
		Options: func(flags *pflag.FlagSet) {
			c.p.define(flags)
			line.Choice(flags, &c.mode, "mode", "", "MODE", "Alias for --network-policy", "allow-all", "deny-all")
		},
		Example: "config network-policy my-app --allowed-domain example.com", Doc: sandboxView{}, Run: c.run,
	}
}

func (c *configPolicyCommand) run(cmd *cobra.Command, args []string) error {
	if c.mode != "" {
		if c.p.mode != "" && c.p.mode != c.mode {
			return line.Usagef("--network-policy=%s and --mode=%s contradict each other", c.p.mode, c.mode)
		}
		c.p.mode = c.mode
	}
	policy, err := c.p.build(cmd.Context(), &c.deps)
	if err != nil {
		return err
	}
	if policy == nil {
		return line.Usagef("give a network policy: --network-policy, --allowed-domain, --allowed-cidr, --denied-cidr or --network-policy-file")
	}
	return c.update(cmd.Context(), args[0], "network policy", func(*sandbox.Sandbox) (*sandbox.UpdateOptions, func(*sandbox.Sandbox) []string, error) {
		return &sandbox.UpdateOptions{NetworkPolicy: policy}, func(*sandbox.Sandbox) []string {
			return []string{"mode: " + c.screen.Err.Paint(console.Cyan, policyText(viewPolicy(policy)))}
		}, nil
	})
}

type configPortsCommand struct {
	deps

	ports []int
}

func (c *configPortsCommand) command() *line.Command {
	return &line.Command{
		Name: "ports", Short: "Set the published ports; without any, publish none", Args: []line.Argument{line.NameArg},
		Options: func(flags *pflag.FlagSet) {
			line.Options(flags, &c.ports, "publish-port", "p", "PORT", "Publish a port at an address of its own (repeatable)", line.ParsePort)
		},
		Example: "config ports my-app -p 3000", Doc: sandboxView{}, Run: c.run,
	}
}

func (c *configPortsCommand) run(cmd *cobra.Command, args []string) error {
	ports := append([]int{}, c.ports...) // not nil: nil leaves the ports unchanged
	return c.replace(cmd.Context(), args[0], "ports", len(ports) == 0, func(v sandboxView) int { return len(v.Routes) }, &sandbox.UpdateOptions{Ports: ports}, func(sb *sandbox.Sandbox) []string {
		routes := sb.Routes()
		if len(routes) == 0 {
			return []string{"all ports unpublished"}
		}
		return append([]string{"ports:"}, mapped(routes, func(r sandbox.Route) string {
			return fmt.Sprintf("• %d -> %s", r.Port, c.screen.Err.Paint(console.Cyan, r.URL))
		})...)
	})
}

type configTagsCommand struct {
	deps

	tags []line.Pair
}

func (c *configTagsCommand) command() *line.Command {
	return &line.Command{
		Name: "tags", Short: "Set the tags; without any, remove them all", Args: []line.Argument{line.NameArg},
		Options: func(flags *pflag.FlagSet) {
			line.Options(flags, &c.tags, "tag", "t", "key=value", "A tag (repeatable)", line.ParsePair)
		},
		Example: "config tags my-app -t env=ci", Doc: sandboxView{}, Run: c.run,
	}
}

func (c *configTagsCommand) run(cmd *cobra.Command, args []string) error {
	// Other commands omit a tag whose variable is not set, with a warning. Here that would
	// delete the tag from the sandbox, so it is an error.
	if err := c.checkTags(c.tags); err != nil {
		return err
	}
	tags := map[string]string{}
	maps.Copy(tags, c.resolvePairs(c.tags, "--tag"))
	return c.replace(cmd.Context(), args[0], "tags", len(tags) == 0, func(v sandboxView) int { return len(v.Tags) }, &sandbox.UpdateOptions{Tags: tags}, func(*sandbox.Sandbox) []string {
		if len(tags) == 0 {
			return []string{"all tags cleared"}
		}
		return mapped(slices.Sorted(maps.Keys(tags)), func(k string) string { return k + "=" + tags[k] })
	})
}
