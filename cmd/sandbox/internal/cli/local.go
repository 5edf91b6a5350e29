package cli

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/auth"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/local"
)

// daemonArgument makes the program the daemon of --local. Behind it stand the
// directory, that of the emulator's state, and after how long without use it ends.
const daemonArgument = "__local-daemon"

// noBoundary is what is said of the isolation of local sandboxes.
const noBoundary = "It is not a security boundary: what runs in its sandboxes runs on this machine, as you."

func runDaemon(args []string) int {
	idle, err := time.ParseDuration(args[2])
	if err != nil {
		return exitUsage
	}
	return local.Serve(args[0], args[1], Version(), idle)
}

// localDirs are the directories of the daemon and of its emulator's state.
func (a *app) localDirs() (dir, state string, err error) {
	dirs, err := a.dirs()
	return filepath.Join(dirs.State, "daemon"), filepath.Join(dirs.State, "local"), err
}

// connectLocal connects with the user's emulator, which is started if it does not
// run.
func (a *app) connectLocal(ctx context.Context) (*sandbox.Client, error) {
	dir, state, err := a.localDirs()
	if err != nil {
		return nil, err
	}
	if a.completes {
		a.emulator, err = local.Use(ctx, dir)
	} else {
		a.emulator, err = local.Start(ctx, dir, daemonArgument, dir, state, local.IdleTime.String())
	}
	if err != nil {
		return nil, withHint(err, "its files are in %s; if an earlier version has made them, remove that folder", state)
	}
	e := a.emulator.Address
	if a.emulator.Started && !a.opts.quiet {
		fmt.Fprintf(a.err, "Started the local emulator, in mode %s; sandbox local stop ends it. %s\n", e.Mode, noBoundary)
	}
	if e.Version != Version() {
		a.warn("the local emulator is of version "+e.Version+", and this program of "+Version(), "end it with: sandbox local stop")
	}
	a.source = "the local emulator"
	a.scope = auth.Credentials{Token: e.Token, TeamID: e.TeamID, ProjectID: e.ProjectID}
	return a.newClient(auth.Static(a.scope), e.URL)
}

func (a *app) localCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "local", Short: "Inspect and stop the emulator that --local uses", GroupID: groupTools,
		Long: "Inspect and stop the emulator that --local uses. It starts with the first command that needs it and serves all processes of its user, " +
			"so that commands started with -d, ports and terminals go on. It ends by itself after ten idle minutes without a running sandbox. " + noBoundary,
	}
	cmd.AddCommand(
		&cobra.Command{
			Use: "status", Short: "Show whether it runs", Args: positionals(),
			RunE: func(cmd *cobra.Command, _ []string) error {
				dir, state, err := a.localDirs()
				if err != nil {
					return err
				}
				c, err := local.Use(cmd.Context(), dir)
				if errors.Is(err, local.ErrNone) {
					return &exitError{code: exitNotFound, err: withHint(local.ErrNone, "any command with --local starts it")}
				}
				if err != nil {
					return err
				}
				defer c.Close()
				if a.opts.structured() {
					v := map[string]any{"pid": c.Address.PID, "mode": c.Address.Mode, "version": c.Address.Version, "url": c.Address.URL, "dir": state}
					return a.print(output{doc: v, names: []string{fmt.Sprint(c.Address.PID)}})
				}
				_, err = fmt.Fprintf(a.out, "Process %d serves in mode %s, with its files in %s.\n%s\n", c.Address.PID, c.Address.Mode, state, noBoundary)
				return err
			},
		},
		&cobra.Command{
			Use: "stop", Short: "Stop its sandboxes, whose files are kept, and end it", Args: positionals(),
			RunE: func(cmd *cobra.Command, _ []string) error {
				dir, _, err := a.localDirs()
				if err != nil {
					return err
				}
				if err := local.Stop(cmd.Context(), dir); err != nil && !errors.Is(err, local.ErrNone) {
					return err
				}
				return nil
			},
		},
	)
	return group(cmd)
}
