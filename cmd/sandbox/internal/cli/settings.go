package cli

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/dotenv"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/files"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/line"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/units"
	"github.com/go-vercel/sandbox/internal/wire"
)

// settingsOptions describe a new sandbox for create, run, sh and fork.
type settingsOptions struct {
	name          string
	nonPersistent bool
	runtime       string
	image         string
	architecture  string
	timeout       time.Duration
	vcpus         int
	ports         []int
	silent        bool
	snapshot      string
	env           []line.Pair
	envFiles      []string
	environment   sandbox.Env // the variables of env and envFiles together
	tags          []line.Pair
	mounts        []line.Mount
	region        string
	failover      []string
	networkID     string
	credentials   []string
	retention     retention
	policy        policyOptions

	git     string
	depth   int
	tarball string
	uploads []string
}

// retention holds the options that say how long snapshots are kept.
type retention struct {
	expiration    *time.Duration
	keep          int
	keepFor       *time.Duration
	deleteEvicted *bool
}

func (r *retention) define(flags *pflag.FlagSet) {
	line.Option(flags, &r.expiration, "snapshot-expiration", "", "DURATION|none", "",
		`How long snapshots are kept by default, such as 7d; "none" or 0 keeps them`, line.PointerTo(line.ParseExpiration))
	line.Option(flags, &r.keep, "keep-last-snapshots", "", "COUNT", "", "Keep only the COUNT most recent snapshots (1-10)",
		line.ParseBetween(1, 10, "count"))
	line.Option(flags, &r.keepFor, "keep-last-snapshots-for", "", "DURATION|none", "",
		`How long the kept snapshots live; "none" or 0 keeps them`, line.PointerTo(line.ParseExpiration))
	line.Option(flags, &r.deleteEvicted, "delete-evicted-snapshots", "", "true|false", "",
		"Whether snapshots that are no longer kept are deleted at once (the default) or keep their expiration", line.PointerTo(line.ParseBool))
	line.Offer(flags, "delete-evicted-snapshots", "true", "false")
}

// keptFor converts an expiration from the command line to the SDK's form: nil (not given)
// becomes 0, and 0 (keep) becomes Forever.
func keptFor(d *time.Duration) time.Duration {
	switch {
	case d == nil:
		return 0
	case *d == 0:
		return sandbox.Forever
	}
	return *d
}

func (r *retention) policy() (*sandbox.KeepLastSnapshots, error) {
	if r.keep == 0 {
		if r.keepFor != nil || r.deleteEvicted != nil {
			return nil, line.Usagef("--keep-last-snapshots-for and --delete-evicted-snapshots need --keep-last-snapshots COUNT")
		}
		return nil, nil
	}
	return &sandbox.KeepLastSnapshots{Count: r.keep, Expiration: keptFor(r.keepFor), KeepEvicted: r.deleteEvicted != nil && !*r.deleteEvicted}, nil
}

// policyOptions describe a network policy.
type policyOptions struct {
	mode            string
	domains         []string
	allowed, denied []string
	file            string
}

func (o *policyOptions) define(flags *pflag.FlagSet) {
	line.Choice(flags, &o.mode, "network-policy", "", "MODE", "What the sandbox can reach: allow-all (any address) or deny-all (none); "+
		"for more use --allowed-domain, --allowed-cidr and --denied-cidr, or --network-policy-file", "allow-all", "deny-all")
	line.Options(flags, &o.domains, "allowed-domain", "", "str", "A domain that can be reached (repeatable); * stands for a part of the name", line.ParseText)
	line.Options(flags, &o.allowed, "allowed-cidr", "", "str", "A network that can be reached (repeatable)", line.ParseCIDR)
	line.Options(flags, &o.denied, "denied-cidr", "", "str", "A network that can't be reached (repeatable); wins over what is allowed", line.ParseCIDR)
	line.Option(flags, &o.file, "network-policy-file", "", "FILE", "", `Read the whole network policy from a file, as JSON like {"allow": ["example.com"]}, with rules for requests; - is standard input`, line.ParseText)
}

// build returns the policy, or nil if no option describes one.
func (o *policyOptions) build(ctx context.Context, p *deps) (*sandbox.NetworkPolicy, error) {
	custom := len(o.domains)+len(o.allowed)+len(o.denied) > 0
	switch {
	case o.file != "" && (o.mode != "" || custom):
		return nil, line.Usagef("--network-policy-file can't be combined with the other options of a network policy")
	case o.file != "":
		return p.readPolicy(ctx, o.file)
	case o.mode != "" && custom:
		return nil, line.Usagef("--network-policy=%s can't be combined with --allowed-domain, --allowed-cidr or --denied-cidr", o.mode)
	case o.mode == "allow-all":
		return sandbox.AllowAll(), nil
	case o.mode == "deny-all":
		return sandbox.DenyAll(), nil
	case !custom:
		return nil, nil
	}
	return &sandbox.NetworkPolicy{Allow: o.domains, AllowSubnets: o.allowed, DenySubnets: o.denied}, nil
}

// define defines the options for a new sandbox.
func (s *settingsOptions) define(flags *pflag.FlagSet, envText string) {
	line.Option(flags, &s.name, "name", "", "str", "", "The sandbox's name, unique in the project", line.ParseNewName)
	line.Toggle(flags, &s.nonPersistent, "non-persistent", "", "Don't keep the files from one session to the next")
	line.Choice(flags, &s.runtime, "runtime", "", "runtime", "Deprecated, use --image. Options: node22, node24, node26, python3.13", "node22", "node24", "node26", "python3.13")
	line.Option(flags, &s.image, "image", "", "str", "", "An image of the Vercel Container Registry, such as my-repo:v1", line.ParseAny)
	line.Choice(flags, &s.architecture, "architecture", "", "arch", "The CPU architecture, by default that of the image. Options: amd64, arm64", "amd64", "arm64")
	line.Option(flags, &s.timeout, "timeout", "", "num UNIT", "5 minutes", "How long a session runs at most, such as 30m", line.ParseTimeout)
	line.Option(flags, &s.snapshot, "snapshot", "s", "snapshot_id", "", "Start from a snapshot", line.ParseSnapshotID)
	line.Options(flags, &s.mounts, "mount", "", "drive:path[:mode]", "Attach a drive at a path; the mode is snapshot or read-write (repeatable)", line.ParseMount)
	line.Option(flags, &s.credentials, "credentials", "", "TYPE,...", "", "Let the sandbox use credentials of the team without reading them; npm installs packages from the team's registries", line.ParseCredentials)
	line.Offer(flags, "credentials", "npm")
	s.defineShared(flags, envText, "")
	line.Option(flags, &s.git, "git", "", "URL[#REV]", "", "Clone a repository into the sandbox", line.ParseText)
	line.Option(flags, &s.depth, "depth", "", "number", "", "With --git: how many commits of the history", line.ParsePositive)
	line.Option(flags, &s.tarball, "tarball", "", "URL", "", "Unpack an archive into the sandbox", line.ParseText)
	line.Options(flags, &s.uploads, "upload", "", "PATH[:DEST]", "Copy a local file or directory into the new sandbox (repeatable)", line.ParseText)
}

// defineShared defines the options that create, run, sh and fork share.
func (s *settingsOptions) defineShared(flags *pflag.FlagSet, envText, tagText string) {
	line.Option(flags, &s.vcpus, "vcpus", "", "COUNT", "", "Number of vCPUs; each has 2048 MB of memory", line.ParseVCPUs)
	line.Options(flags, &s.ports, "publish-port", "p", "PORT", "Publish a port at an address of its own (repeatable)", line.ParsePort)
	line.Variables(flags, &s.env, envText)
	line.Options(flags, &s.envFiles, "env-file", "", "FILE", "Read environment variables from a file (repeatable)", line.ParseText)
	tagText = cmp.Or(tagText, "A tag of the sandbox (repeatable)")
	line.Options(flags, &s.tags, "tag", "t", "key=value", tagText, line.ParsePair)
	line.Option(flags, &s.region, "region", "", "REGION", "", "The region to run in, such as sfo1; iad1 by default", line.ParseRegion)
	line.Offer(flags, "region", wire.Regions...)
	line.Option(flags, &s.failover, "failover-regions", "", "REGION,...|none", "", "Regions to run in when the first one fails", line.ParseRegions)
	line.Option(flags, &s.networkID, "network-id", "", "NETWORK_ID", "", "The private network of Secure Compute to join", line.ParseNetworkID)
	s.retention.define(flags)
	s.policy.define(flags)
	line.Toggle(flags, &s.silent, "silent", "", "Don't write the sandbox's name to standard output")
}

// resolvePairs converts pairs to a map. For NAME alone, it takes the value of this
// program's variable NAME. If that is not set, resolvePairs omits the pair and warns.
func (p *deps) resolvePairs(pairs []line.Pair, option string) map[string]string {
	var m map[string]string
	for _, it := range pairs {
		value := it.Value
		if it.Inherit {
			v, ok := p.screen.Env.LookupAll(it.Key)
			if !ok {
				p.screen.Warn(fmt.Sprintf("the environment variable %s is not set and was left out", it.Key),
					fmt.Sprintf("%s NAME is short for %s NAME=$NAME", option, option))
				continue
			}
			value = v
		}
		if m == nil {
			m = map[string]string{}
		}
		m[it.Key] = value
	}
	return m
}

// readEnv returns the environment that the options describe. Variables of -e override those
// of the files.
func (p *deps) readEnv(pairs []line.Pair, files []string) (sandbox.Env, error) {
	var env sandbox.Env
	for _, name := range files {
		vars, err := dotenv.LoadFile(name)
		if err != nil {
			return nil, fmt.Errorf("--env-file: %w", err)
		}
		if env == nil {
			env = sandbox.Env{}
		}
		maps.Copy(env, vars)
	}
	given := p.resolvePairs(pairs, "--env")
	if env == nil {
		return given, nil
	}
	maps.Copy(env, given)
	return env, nil
}

// createOptions converts the options to the SDK's type.
func (s *settingsOptions) createOptions(ctx context.Context, p *deps) (*sandbox.CreateOptions, error) {
	switch {
	case s.runtime != "" && s.image != "":
		return nil, line.Usagef("--runtime and --image can't be used together")
	case s.depth > 0 && s.git == "":
		return nil, line.Usagef("--depth needs --git")
	}
	keep, policy, env, err := s.sharedOptions(ctx, p)
	if err != nil {
		return nil, err
	}
	source, err := s.source()
	if err != nil {
		return nil, err
	}
	for _, upload := range s.uploads {
		from, _ := files.SplitUpload(upload)
		if _, err := os.Stat(from); err != nil {
			return nil, files.NoSource(from, err)
		}
	}
	o := &sandbox.CreateOptions{
		Name: s.name, Source: source, Ports: s.ports, Timeout: s.timeout, VCPUs: s.vcpus, Runtime: s.runtime, Image: s.image, Architecture: s.architecture,
		NetworkPolicy: policy, Env: env, Tags: p.resolvePairs(s.tags, "--tag"), Ephemeral: s.nonPersistent,
		SnapshotExpiration: keptFor(s.retention.expiration), KeepLastSnapshots: keep,
		Region: s.region, FailoverRegions: s.failover, NetworkID: s.networkID, Mounts: mountsOf(s.mounts),
		Extra: map[string]any{"__interactive": true},
	}
	if len(s.credentials) > 0 {
		o.Credentials = &sandbox.Credentials{NPM: true}
	}
	if s.snapshot != "" {
		o.Image, o.Runtime = "", ""
	}
	return o, nil
}

// sharedOptions converts the retention, the network policy and the environment, which
// create and fork share.
func (s *settingsOptions) sharedOptions(ctx context.Context, p *deps) (*sandbox.KeepLastSnapshots, *sandbox.NetworkPolicy, sandbox.Env, error) {
	keep, err := s.retention.policy()
	if err != nil {
		return nil, nil, nil, err
	}
	policy, err := s.policy.build(ctx, p)
	if err != nil {
		return nil, nil, nil, err
	}
	if s.environment == nil { // otherwise, run has already read it for its command
		s.environment, err = p.readEnv(s.env, s.envFiles)
	}
	return keep, policy, s.environment, err
}

// warnWithoutUnit warns if a timeout seems to lack its unit.
func (p *deps) warnWithoutUnit(text string) {
	if d, err := units.ParseDuration(text); err == nil && units.BareNumber(text, d) {
		p.screen.Warn(fmt.Sprintf("the timeout is %d ms", d.Milliseconds()), fmt.Sprintf("did you mean %ds?", d.Milliseconds()))
	}
}

// optionValue returns the text of an option.
func optionValue(cmd *cobra.Command, option string) string {
	return cmd.Flags().Lookup(option).Value.String()
}

func (s *settingsOptions) source() (sandbox.Source, error) {
	given := 0
	for _, v := range []string{s.snapshot, s.git, s.tarball} {
		if v != "" {
			given++
		}
	}
	switch {
	case given > 1:
		return nil, line.Usagef("--snapshot, --git and --tarball exclude each other")
	case s.snapshot != "":
		return sandbox.SnapshotSource{SnapshotID: s.snapshot}, nil
	case s.git != "":
		url, revision, _ := strings.Cut(s.git, "#")
		return sandbox.GitSource{URL: url, Revision: revision, Depth: s.depth}, nil
	case s.tarball != "":
		return sandbox.TarballSource{URL: s.tarball}, nil
	}
	return nil, nil
}
