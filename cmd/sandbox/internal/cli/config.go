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
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/table"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/units"
	"github.com/go-vercel/sandbox/internal/wire"
)

// setting is a command of config with one value.
type setting struct {
	name, kind, short string
	text, sample      string   // what the value is, and one of them
	values            []string // what it can be
	alias             []string
	// change says what to change, and how to tell of it; keep is the policy of the
	// sandbox, if it has one.
	change func(keep *sandbox.KeepLastSnapshots, text string) (*sandbox.UpdateOptions, string, error)
	// check refuses a value before any request.
	check func(text string) error
}

var errNoPolicy = errors.New("no keep-last-snapshots policy is set on this sandbox")

// needsPolicy is the error of a setting that a sandbox without a retention policy
// can't have.
func needsPolicy(present *sandbox.KeepLastSnapshots) (sandbox.KeepLastSnapshots, error) {
	if present != nil {
		return *present, nil
	}
	return sandbox.KeepLastSnapshots{}, errNoPolicy
}

func noneIfZero(text string) string {
	if d, err := parseExpiration(text); err == nil && d == 0 {
		return "none"
	}
	return text
}

// single settings, in the order of the help page.
var configSettings = []setting{
	{
		name: "vcpus", text: "A number, which is 1 or even", sample: "4", values: []string{"1", "2", "4", "8", "16", "32"}, kind: "COUNT", short: "Set the number of vCPUs", check: checked(parseVCPUs),
		change: func(_ *sandbox.KeepLastSnapshots, s string) (*sandbox.UpdateOptions, string, error) {
			n, err := parseVCPUs(s)
			return &sandbox.UpdateOptions{VCPUs: n}, s, err
		},
	},
	{
		name: "timeout", text: "A duration, such as 30m or 1h30m", sample: "30m", kind: "num UNIT", short: "Set how long sessions run at most; a longer one also extends the running session", check: checked(parseTimeout),
		change: func(_ *sandbox.KeepLastSnapshots, s string) (*sandbox.UpdateOptions, string, error) {
			d, err := parseTimeout(s)
			return &sandbox.UpdateOptions{Timeout: d}, s, err
		},
	},
	{
		name: "persistent", text: "Whether it is so", sample: "false", values: []string{"true", "false"}, kind: "true|false", short: "Say whether files are kept from one session to the next", check: checked(parseBool),
		change: func(_ *sandbox.KeepLastSnapshots, s string) (*sandbox.UpdateOptions, string, error) {
			b, err := parseBool(s)
			return &sandbox.UpdateOptions{Persistent: &b}, s, err
		},
	},
	{
		name: "region", text: "A region, such as sfo1", sample: "sfo1", values: wire.Regions, kind: "REGION", short: "Set the region of new sessions", check: checked(parseRegion),
		change: func(_ *sandbox.KeepLastSnapshots, s string) (*sandbox.UpdateOptions, string, error) {
			region, err := parseRegion(s)
			return &sandbox.UpdateOptions{Region: region}, region, err
		},
	},
	{
		name: "failover-regions", text: "Regions, divided by commas", sample: "sfo1,fra1", values: wire.Regions, kind: "REGION,...|none", short: "Set the regions to run in when the first one fails", check: checked(parseRegions),
		change: func(_ *sandbox.KeepLastSnapshots, s string) (*sandbox.UpdateOptions, string, error) {
			regions, err := parseRegions(s)
			return &sandbox.UpdateOptions{FailoverRegions: regions}, cmp.Or(strings.Join(regions, ", "), "none"), err
		},
	},
	{
		name: "network-id", text: "The ID of the network", sample: "net_0123", values: []string{"none"}, alias: []string{"network"}, kind: "NETWORK_ID|none", short: "Set the private network of Secure Compute", check: checked(parseNetworkID),
		change: func(_ *sandbox.KeepLastSnapshots, s string) (*sandbox.UpdateOptions, string, error) {
			id, err := parseNetworkID(s)
			if id == "none" {
				return &sandbox.UpdateOptions{NetworkID: new(string)}, "cleared", err
			}
			return &sandbox.UpdateOptions{NetworkID: &id}, id, err
		},
	},
	{
		name: "snapshot-expiration", text: "A duration, such as 7d", sample: "7d", values: []string{"none"}, kind: "DURATION|none", short: "Set how long snapshots are kept by default", check: checked(parseExpiration),
		change: func(_ *sandbox.KeepLastSnapshots, s string) (*sandbox.UpdateOptions, string, error) {
			d, err := parseExpiration(s)
			return &sandbox.UpdateOptions{SnapshotExpiration: keptFor(&d)}, noneIfZero(s), err
		},
	},
	{
		name: "keep-last-snapshots", text: "A number from 1 to 10; 0 keeps all", sample: "3", kind: "COUNT", short: "Keep only the COUNT most recent snapshots; 0 keeps all",
		check: checked(parseBetween(0, 10, "count")),
		change: func(present *sandbox.KeepLastSnapshots, s string) (*sandbox.UpdateOptions, string, error) {
			n, err := strconv.Atoi(s)
			if err != nil || n == 0 {
				return &sandbox.UpdateOptions{KeepLastSnapshots: &sandbox.KeepLastSnapshots{}}, "cleared", err
			}
			keep := sandbox.KeepLastSnapshots{}
			if present != nil {
				keep = *present
			}
			keep.Count = n
			return &sandbox.UpdateOptions{KeepLastSnapshots: &keep}, "count=" + s, nil
		},
	},
	{
		name: "keep-last-snapshots-for", text: "A duration, such as 7d", sample: "7d", values: []string{"none"}, kind: "DURATION|none", short: "Set how long the kept snapshots live", check: checked(parseExpiration),
		change: func(present *sandbox.KeepLastSnapshots, s string) (*sandbox.UpdateOptions, string, error) {
			keep, err := needsPolicy(present)
			if err != nil {
				return nil, "", err
			}
			d, err := parseExpiration(s)
			keep.Expiration = keptFor(&d)
			return &sandbox.UpdateOptions{KeepLastSnapshots: &keep}, noneIfZero(s), err
		},
	},
	{
		name: "delete-evicted-snapshots", text: "Whether it is so", sample: "true", values: []string{"true", "false"}, kind: "true|false", check: checked(parseBool),
		short: "Say whether snapshots that are no longer kept are deleted at once or keep their expiration",
		change: func(present *sandbox.KeepLastSnapshots, s string) (*sandbox.UpdateOptions, string, error) {
			keep, err := needsPolicy(present)
			if err != nil {
				return nil, "", err
			}
			b, err := parseBool(s)
			keep.KeepEvicted = !b
			return &sandbox.UpdateOptions{KeepLastSnapshots: &keep}, s, err
		},
	},
	{
		name: "current-snapshot", text: "The ID of a snapshot, which begins with snap_", sample: "snap_0123", kind: "snapshot_id", short: "Set the snapshot that the next session starts from", check: checked(parseSnapshotID),
		change: func(_ *sandbox.KeepLastSnapshots, s string) (*sandbox.UpdateOptions, string, error) {
			return &sandbox.UpdateOptions{CurrentSnapshotID: s}, s, nil
		},
	},
}

type configCommand struct{ place }

func (c *configCommand) command() *command {
	config := &command{name: "config", near: []string{"set", "update"}, first: true, short: "Show and change the settings of a sandbox"}
	config.sub = append(config.sub, (&configListCommand{place: c.place}).command())
	for _, s := range configSettings {
		config.sub = append(config.sub, c.settingCommand(&s))
	}
	config.sub = append(config.sub, describe(
		&configMountsCommand{place: c.place}, &configPolicyCommand{place: c.place}, &configPortsCommand{place: c.place}, &configTagsCommand{place: c.place}, &policyCommand{place: c.place},
	)...)
	return config
}

func (c *configCommand) settingCommand(s *setting) *command {
	return &command{
		name: s.name, aliases: s.alias, short: s.short, example: "config " + s.name + " my-app " + s.sample, doc: sandboxView{},
		args: []argument{nameArg, {name: s.kind, text: s.text, parse: s.check, values: s.values}},
		run: func(cmd *cobra.Command, args []string) error {
			return c.update(cmd.Context(), args[0], "configuration", func(sb *sandbox.Sandbox) (*sandbox.UpdateOptions, func(*sandbox.Sandbox) []string, error) {
				o, shown, err := s.change(sb.Info().KeepLastSnapshots, args[1])
				if errors.Is(err, errNoPolicy) {
					err = withHint(err, "set a count first with: %s", try("config keep-last-snapshots %s COUNT", sb.Name()))
				}
				return o, func(*sandbox.Sandbox) []string {
					return []string{s.name + ": " + c.screen.err.Paint(console.Cyan, shown)}
				}, err
			})
		},
	}
}

// set changes a sandbox, whatever it is like now, and tells of it.
func (p *place) set(ctx context.Context, name, what string, o *sandbox.UpdateOptions, lines func(*sandbox.Sandbox) []string) error {
	return p.update(ctx, name, what, func(*sandbox.Sandbox) (*sandbox.UpdateOptions, func(*sandbox.Sandbox) []string, error) {
		return o, lines, nil
	})
}

// replace changes a list of a sandbox as a whole. A line without a value clears it,
// and may have been meant to show it: at a terminal, that is asked first.
func (p *place) replace(ctx context.Context, name, what string, clears bool, present func(sandboxView) int, o *sandbox.UpdateOptions, lines func(*sandbox.Sandbox) []string) error {
	return p.update(ctx, name, what, func(sb *sandbox.Sandbox) (*sandbox.UpdateOptions, func(*sandbox.Sandbox) []string, error) {
		if n := present(viewHandle(sb)); clears && n > 0 && p.screen.asks() {
			if err := p.screen.confirm(ctx, fmt.Sprintf("Remove all %s of %s (%d)?", what, sb.Name(), n)); err != nil {
				return nil, nil, err
			}
		}
		return o, lines, nil
	})
}

// update changes a sandbox and tells of it.
func (p *place) update(ctx context.Context, name, what string,
	change func(*sandbox.Sandbox) (o *sandbox.UpdateOptions, lines func(*sandbox.Sandbox) []string, err error),
) error {
	name, err := p.account.checkedName(name)
	if err != nil {
		return err
	}
	sb, err := p.account.get(ctx, name, false)
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
	stop := p.screen.spin("Updating " + title + "...")
	err = sb.Update(ctx, o)
	stop()
	if err != nil {
		return err
	}
	if p.screen.opts.structured() {
		return p.screen.print(output{doc: viewHandle(sb), names: []string{sb.Name()}})
	}
	fmt.Fprintf(p.screen.err, "✅ %s updated for sandbox %s\n", strings.ToUpper(what[:1])+what[1:], p.screen.err.Paint(console.Cyan, sb.Name()))
	p.screen.tree(lines(sb), func(s string) string { return p.screen.err.Paint(console.Dim, s) })
	return nil
}

type configListCommand struct{ place }

func (c *configListCommand) command() *command {
	return &command{
		name: "list", near: []string{"get", "status"}, short: "Show the settings of a sandbox", args: []argument{nameArg}, example: "config list my-app", doc: sandboxView{}, run: c.run,
	}
}

func (c *configListCommand) run(cmd *cobra.Command, args []string) error {
	name, err := c.account.checkedName(args[0])
	if err != nil {
		return err
	}
	if _, err := c.account.connect(cmd.Context()); err != nil {
		return err
	}
	stop := c.screen.spin("Fetching sandbox configuration...")
	sb, err := c.account.get(cmd.Context(), name, false)
	stop()
	if err != nil {
		return err
	}
	v := viewHandle(sb)
	return c.screen.print(output{doc: v, names: []string{v.Name}, table: func() *table.Table { return configTable(v) }})
}

func configTable(v sandboxView) *table.Table {
	t := table.New("FIELD", "VALUE")
	row := func(name, value string) { t.Row(table.Cell{Text: name, Style: console.Bold}, value) }
	row("Region", dash(v.Region))
	row("Failover regions", dash(strings.Join(v.FailoverRegions, ", ")))
	row("Secure Compute network", dash(v.NetworkID))
	row("vCPUs", number(v.VCPUs))
	row("Timeout", units.Long(time.Duration(v.Timeout)*time.Millisecond))
	row("Persistent", strconv.FormatBool(v.Persistent))
	row("Network policy", policyText(v.NetworkPolicy))
	row("Ports", dash(strings.Join(mapped(v.Routes, func(r routeView) string { return strconv.Itoa(r.Port) }), ", ")))
	row("Snapshot expiration", expirationText(v.SnapshotExpiration))
	row("Keep last snapshots", keepText(v.KeepLastSnapshots))
	row("Current snapshot", dash(v.CurrentSnapshotID))
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
	place

	mounts []mount
}

func (c *configMountsCommand) command() *command {
	return &command{
		name: "mounts", short: "Set the drives of new sessions; without --mount, remove them all", args: []argument{nameArg},
		options: func(flags *pflag.FlagSet) {
			options(flags, &c.mounts, "mount", "", "drive:path[:mode]", "Attach a drive at a path; the mode is snapshot or read-write (repeatable)", parseMount)
		},
		example: "config mounts my-app --mount cache:/data", doc: sandboxView{}, run: c.run,
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
		return mapped(c.mounts, func(m mount) string { return m.drive + " -> " + m.path + " (" + m.mode + ")" })
	})
}

// mountsOf makes the SDK's mounts of the options.
func mountsOf(mounts []mount) map[string]sandbox.Mount {
	var m map[string]sandbox.Mount
	for _, it := range mounts {
		if m == nil {
			m = map[string]sandbox.Mount{}
		}
		m[it.path] = sandbox.Mount{Drive: it.drive, Mode: sandbox.MountMode(it.mode)}
	}
	return m
}

type configPolicyCommand struct {
	place

	p    policyOptions
	mode string
}

func (c *configPolicyCommand) command() *command {
	return &command{
		name: "network-policy", short: "Set what a sandbox can reach, at once and from now on", args: []argument{nameArg},
		options: func(flags *pflag.FlagSet) {
			c.p.define(flags)
			option(flags, &c.mode, "mode", "", "MODE", "", "Alias for --network-policy", parsePolicyMode)
		},
		example: "config network-policy my-app --allowed-domain example.com", doc: sandboxView{}, run: c.run,
	}
}

func (c *configPolicyCommand) run(cmd *cobra.Command, args []string) error {
	if c.mode != "" {
		if c.p.mode != "" && c.p.mode != c.mode {
			return usagef("--network-policy=%s and --mode=%s contradict each other", c.p.mode, c.mode)
		}
		c.p.mode = c.mode
	}
	policy, err := c.p.build(cmd.Context(), &c.place)
	if err != nil {
		return err
	}
	if policy == nil {
		return usagef("give a network policy: --network-policy, --allowed-domain, --allowed-cidr, --denied-cidr or --network-policy-file")
	}
	return c.set(cmd.Context(), args[0], "network policy", &sandbox.UpdateOptions{NetworkPolicy: policy}, func(*sandbox.Sandbox) []string {
		return []string{"mode: " + c.screen.err.Paint(console.Cyan, policyText(viewPolicy(policy)))}
	})
}

type configPortsCommand struct {
	place

	ports []int
}

func (c *configPortsCommand) command() *command {
	return &command{
		name: "ports", short: "Set the published ports; without any, publish none", args: []argument{nameArg},
		options: func(flags *pflag.FlagSet) {
			options(flags, &c.ports, "publish-port", "p", "PORT", "Publish a port at an address of its own (repeatable)", parsePort)
		},
		example: "config ports my-app -p 3000", doc: sandboxView{}, run: c.run,
	}
}

func (c *configPortsCommand) run(cmd *cobra.Command, args []string) error {
	ports := append([]int{}, c.ports...) // not nil, which would leave them as they are
	return c.replace(cmd.Context(), args[0], "ports", len(ports) == 0, func(v sandboxView) int { return len(v.Routes) }, &sandbox.UpdateOptions{Ports: ports}, func(sb *sandbox.Sandbox) []string {
		routes := sb.Routes()
		if len(routes) == 0 {
			return []string{"all ports unpublished"}
		}
		return append([]string{"ports:"}, mapped(routes, func(r sandbox.Route) string {
			return fmt.Sprintf("• %d -> %s", r.Port, c.screen.err.Paint(console.Cyan, r.URL))
		})...)
	})
}

type configTagsCommand struct {
	place

	tags []pair
}

func (c *configTagsCommand) command() *command {
	return &command{
		name: "tags", short: "Set the tags; without any, remove them all", args: []argument{nameArg},
		options: func(flags *pflag.FlagSet) {
			options(flags, &c.tags, "tag", "t", "key=value", "A tag (repeatable)", parsePair)
		},
		example: "config tags my-app -t env=ci", doc: sandboxView{}, run: c.run,
	}
}

func (c *configTagsCommand) run(cmd *cobra.Command, args []string) error {
	// Left out, as elsewhere, a tag would be deleted, and with it all others
	// that are not named.
	if err := c.haveValues(c.tags); err != nil {
		return err
	}
	tags := map[string]string{}
	maps.Copy(tags, c.pairs(c.tags, "--tag"))
	return c.replace(cmd.Context(), args[0], "tags", len(tags) == 0, func(v sandboxView) int { return len(v.Tags) }, &sandbox.UpdateOptions{Tags: tags}, func(*sandbox.Sandbox) []string {
		if len(tags) == 0 {
			return []string{"all tags cleared"}
		}
		return mapped(slices.Sorted(maps.Keys(tags)), func(k string) string { return k + "=" + tags[k] })
	})
}
