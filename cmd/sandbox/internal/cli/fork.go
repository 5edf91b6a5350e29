package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/go-vercel/sandbox"
)

func (a *app) forkCommand() *cobra.Command {
	var (
		s       settingsOptions
		connect bool
	)
	cmd := &cobra.Command{
		Use: "fork <source>", Short: "Make a copy of a sandbox", Args: positionals("source"),
		Long: "Make a sandbox from the latest snapshot of another, with its settings; options override them. What was changed " +
			"since that snapshot is not in the copy: run sandbox snapshot --stop <source> first to copy the present files.",
	}
	flags := cmd.Flags()
	option(flags, &s.name, "name", "", "str", "", "The copy's name, unique in the project", parseText)
	toggle(flags, &s.nonPersistent, "non-persistent", "", "Don't keep the files from one session to the next")
	option(flags, &s.timeout, "timeout", "", "num UNIT", "", "How long a session runs at most, such as 30m; as in the source by default", parseTimeout)
	s.defineShared(flags, "An environment variable (repeatable); replaces those of the source", "A tag (repeatable); replaces those of the source")
	toggle(flags, &connect, "connect", "", "Start a shell in the copy")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		ctx := cmd.Context()
		a.doubtTimeout(given(cmd, "timeout"))
		o, err := a.forkOptions(&s)
		if err != nil {
			return err
		}
		if connect {
			if err := a.needTerminal("leave --connect out"); err != nil {
				return err
			}
		}
		source, err := a.resolveName(args[0])
		if err != nil {
			return err
		}
		original, err := a.get(ctx, source, false)
		if err != nil {
			return err
		}
		if original.Status() == sandbox.StatusRunning {
			from := "its latest snapshot"
			if original.Info().CurrentSnapshotID == "" {
				from = "its runtime image (it has no snapshot yet)"
			}
			a.warn(fmt.Sprintf("%s is running. The copy starts from %s, not from its present files.", source, from),
				fmt.Sprintf("run `sandbox snapshot --stop %s` first to copy the present files.", source))
		}
		stop := a.spinUnless(s.silent, fmt.Sprintf("Forking sandbox %s...", source))
		sb, err := a.client.Fork(ctx, source, o)
		stop()
		if err != nil {
			return err
		}
		if err := a.announce(sb, &s, "forked from "+source, !connect, true); err != nil || !connect {
			return err
		}
		return a.terminal(ctx, sb, &terminalOptions{keepAlive: true})
	}
	return cmd
}

func (a *app) forkOptions(s *settingsOptions) (*sandbox.CreateOptions, error) {
	keep, policy, env, err := a.common(s)
	if err != nil {
		return nil, err
	}
	o := &sandbox.CreateOptions{
		Name: s.name, Ports: s.ports, Timeout: s.timeout, VCPUs: s.vcpus, NetworkPolicy: policy, Env: env, Tags: a.pairs(s.tags, "--tag"),
		Ephemeral: s.nonPersistent, Region: s.region, FailoverRegions: s.failover, NetworkID: s.networkID,
		SnapshotExpiration: keptFor(s.retention.expiration), KeepLastSnapshots: keep, Private: map[string]any{"__interactive": true},
	}
	return o, nil
}
