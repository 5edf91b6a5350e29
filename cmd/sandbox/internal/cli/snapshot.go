package cli

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/console"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/line"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/screen"
)

type snapshotCommand struct {
	deps

	stop, silent bool
	expiration   *time.Duration
}

func (c *snapshotCommand) command() *line.Command {
	return &line.Command{
		Name: "snapshot", Near: []string{"save", "commit"}, First: true, Short: "Take a snapshot of a sandbox's files",
		Long: "Take a snapshot of a sandbox's files, which ends its session. The snapshot's ID is written to standard output.",
		Args: []line.Argument{line.NameArg}, Options: c.define, Example: "snapshot my-app --stop", Doc: snapshotView{}, Run: c.run,
	}
}

func (c *snapshotCommand) define(flags *pflag.FlagSet) {
	line.Toggle(flags, &c.stop, "stop", "", "Accept that the session ends")
	line.Toggle(flags, &c.silent, "silent", "", "Don't write the snapshot's ID to standard output")
	line.Option(flags, &c.expiration, "expiration", "", "num UNIT", "", "How long the snapshot is kept; 0 keeps it", line.PointerTo(line.ParseExpiration))
}

func (c *snapshotCommand) run(cmd *cobra.Command, args []string) error {
	ctx := cmd.Context()
	if !c.stop && !c.screen.Opts.Yes && !c.screen.Asks() {
		return screen.WithHint(line.Usagef("a snapshot ends the current session of the sandbox"), "add --stop to accept that")
	}
	sb, err := c.account.Named(ctx, args[0], false)
	if err != nil {
		return err
	}
	if status := sb.Status(); status != sandbox.StatusRunning {
		return screen.WithHint(fmt.Errorf("sandbox %s is not running (its status is %s)", sb.Name(), status),
			"a stopped sandbox has its snapshot already: %s", screen.Try("snapshots list --name %s", sb.Name()))
	}
	if !c.stop {
		if err := c.screen.Confirm(ctx, "A snapshot ends the current session of "+sb.Name()+". Go on?"); err != nil {
			return err
		}
	}
	done := c.screen.SpinUnless(c.silent, "Creating snapshot...")
	snap, err := sb.Snapshot(ctx, &sandbox.SnapshotOptions{Expiration: keptFor(c.expiration)})
	done()
	if err != nil {
		return err
	}
	if c.screen.Opts.Structured() {
		return c.screen.Print(screen.Output{Doc: viewSnapshot(snap.Info()), Names: []string{snap.ID()}})
	}
	if c.silent {
		return nil
	}
	fmt.Fprintf(c.screen.Err, "%s Snapshot %s created.\n", c.screen.Err.Paint(console.Green, "✔"), snap.ID())
	_, err = fmt.Fprintln(c.screen.Out, snap.ID())
	return err
}
