package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/line"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/screen"
)

type forkCommand struct {
	deps

	s       settingsOptions
	connect bool
}

func (c *forkCommand) command() *line.Command {
	return &line.Command{
		Name: "fork", Short: "Make a copy of a sandbox",
		Long: "Create a sandbox from the latest snapshot of another one, with its settings; options override them. The copy does not have " +
			"what changed after that snapshot. To copy the current files, run sandbox snapshot --stop <source> first.",
		Args:    []line.Argument{{Name: "source", Text: "The name of the sandbox to copy", Sandbox: " "}},
		Options: c.define, Example: "fork my-app --name copy", Doc: sandboxView{}, Run: c.run,
	}
}

func (c *forkCommand) define(flags *pflag.FlagSet) {
	line.Option(flags, &c.s.name, "name", "", "str", "", "The copy's name, unique in the project", line.ParseNewName)
	line.Toggle(flags, &c.s.nonPersistent, "non-persistent", "", "Don't keep the files from one session to the next")
	line.Option(flags, &c.s.timeout, "timeout", "", "num UNIT", "", "How long a session runs at most, such as 30m; as in the source by default", line.ParseTimeout)
	c.s.defineShared(flags, "An environment variable (repeatable); replaces those of the source", "A tag (repeatable); replaces those of the source")
	line.Toggle(flags, &c.connect, "connect", "", "Start a shell in the copy")
}

func (c *forkCommand) run(cmd *cobra.Command, args []string) error {
	ctx := cmd.Context()
	c.warnWithoutUnit(optionValue(cmd, "timeout"))
	source := args[0]
	if err := c.account.CheckName(source); err != nil {
		return err
	}
	o, err := c.forkOptions(ctx, &c.s)
	if err != nil {
		return err
	}
	if c.connect {
		if err := c.screen.NeedTerminal("leave --connect out"); err != nil {
			return err
		}
	}
	original, err := c.account.Get(ctx, source, false)
	if err != nil {
		return err
	}
	if original.Status() == sandbox.StatusRunning {
		from := "its latest snapshot"
		if original.Info().CurrentSnapshotID == "" {
			from = "its runtime image (it has no snapshot yet)"
		}
		c.screen.Warn(fmt.Sprintf("%s is running. The copy starts from %s, not from its present files.", source, from),
			fmt.Sprintf("run `%s` first to copy the present files.", screen.Try("snapshot --stop %s", source)))
	}
	stop := c.screen.SpinUnless(c.s.silent, fmt.Sprintf("Forking sandbox %s...", source))
	sb, err := c.account.Client.Fork(ctx, source, o)
	stop()
	if err != nil {
		return err
	}
	if session := sb.CurrentSession(); original.Status() != sandbox.StatusRunning && session != nil && session.Info().SourceSnapshotID == "" {
		c.screen.Warn(fmt.Sprintf("%s has no snapshot. The copy has none of its files.", source), "run `"+screen.Try("snapshot --stop %s", source)+"` before it stops to keep its files.")
	}
	if err := c.announce(sb, &c.s, "forked from "+source, !c.connect, true); err != nil || !c.connect {
		return err
	}
	return c.terminal(ctx, sb, &terminalOptions{keepAlive: true})
}

func (c *forkCommand) forkOptions(ctx context.Context, s *settingsOptions) (*sandbox.ForkOptions, error) {
	keep, policy, env, err := s.sharedOptions(ctx, &c.deps)
	if err != nil {
		return nil, err
	}
	o := &sandbox.ForkOptions{
		Name: s.name, Ports: s.ports, Timeout: s.timeout, VCPUs: s.vcpus, NetworkPolicy: policy, Env: env, Tags: c.resolvePairs(s.tags, "--tag"),
		Region: s.region, FailoverRegions: s.failover, NetworkID: s.networkID,
		AllowEmpty: true, SnapshotExpiration: keptFor(s.retention.expiration), KeepLastSnapshots: keep, Extra: map[string]any{"__interactive": true},
	}
	if s.nonPersistent {
		o.Persistent = new(false)
	}
	return o, nil
}
