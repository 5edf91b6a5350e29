package account

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/auth"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/local"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/screen"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/settings"
)

// DaemonArgument is the first argument of the daemon of --local. The next arguments are the
// daemon's directory, the directory of the emulator's state, and the idle time after which
// the daemon ends.
const DaemonArgument = "__local-daemon"

// NoBoundary is the warning about the isolation of local sandboxes.
const NoBoundary = "It is not a security boundary: its sandboxes run on this machine, as you."

// LocalDirs returns the directories of the daemon and of its emulator's state.
func (c *Account) LocalDirs() (dir, state string, err error) {
	dirs := settings.FindDirs(c.screen.Env.Lookup)
	if dirs.State == "" {
		return "", "", settings.ErrNoHome
	}
	return filepath.Join(dirs.State, "daemon"), filepath.Join(dirs.State, "local"), nil
}

// connectLocal connects to the user's emulator. It starts the emulator unless it runs,
// except for a completion.
func (c *Account) connectLocal(ctx context.Context) (*sandbox.Client, error) {
	dir, state, err := c.LocalDirs()
	if err != nil {
		return nil, err
	}
	if c.Completes {
		c.emulator, err = local.Use(ctx, dir)
	} else {
		c.emulator, err = local.Start(ctx, dir, DaemonArgument, dir, state, local.IdleTime.String())
	}
	log := filepath.Join(dir, local.LogName)
	if err != nil {
		return nil, screen.WithHint(err, "its files are in %s and its log is %s", state, log)
	}
	c.emulator.OnLost(func() {
		// End the program now. It would otherwise retry its requests for minutes, at a port
		// where nobody listens.
		c.fail(screen.WithHint(local.ErrGone, "its log is %s", log))
	})
	e := c.emulator.Address
	if c.emulator.Started && !c.screen.Opts.Quiet {
		fmt.Fprintln(c.screen.Err, screen.Prose(c.screen.Err, c.screen.Filled(fmt.Sprintf("Started the local emulator, in mode %s; %s ends it. %s", e.Mode, screen.Try("local stop"), NoBoundary))))
	}
	if e.Version != c.version {
		c.screen.Warn("the local emulator has version "+e.Version+", and this program "+c.version, "end it with: "+screen.Try("local stop"))
	}
	c.screen.Source = "the local emulator"
	c.Scope = auth.Credentials{Token: e.Token, TeamID: cmp.Or(c.Given.Scope, e.TeamID), ProjectID: cmp.Or(c.Given.Project, e.ProjectID)}
	return c.newClient(auth.Static(c.Scope), e.URL)
}
