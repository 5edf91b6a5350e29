package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/auth"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/local"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/settings"
)

// accountOptions are the options of all commands that choose the account.
type accountOptions struct {
	token, project, scope string

	apiURL         string
	requestTimeout time.Duration
	local          bool
}

// account are the options that name the account of the present line. A token is
// never shown.
func (c *connection) account() (words []string) {
	o := &c.given
	if o.local {
		words = append(words, "--local")
	}
	for _, option := range [][2]string{{"--api-url", o.apiURL}, {"--scope", o.scope}, {"--project", o.project}} {
		if option[1] != "" {
			words = append(words, option[0]+"="+option[1])
		}
	}
	return words
}

// here are the first words of a command line for the same place as this one.
func (c *connection) here(command string) []string {
	words := append([]string{"sandbox", command}, c.account()...)
	if c.given.local {
		return words
	}
	if c.given.scope == "" {
		words = append(words, "--scope="+c.scope.TeamID)
	}
	if c.given.project == "" {
		words = append(words, "--project="+c.scope.ProjectID)
	}
	return words
}

func (c *connection) base() string { return cmp.Or(c.apiURL(), "https://vercel.com/api") }

func (c *connection) close() error {
	if c.client != nil {
		c.client.CloseIdleConnections()
	}
	if c.emulator != nil {
		return c.emulator.Close()
	}
	return nil
}

func (s *stdio) dirs() settings.Dirs { return settings.FindDirs(s.env.Lookup) }

// create creates a sandbox. With a name, a lost response is resolved by a
// lookup.
func (c *connection) create(ctx context.Context, o *sandbox.CreateOptions) (*sandbox.Sandbox, error) {
	client, err := c.connect(ctx)
	if err != nil {
		return nil, err
	}
	sb, err := client.Create(ctx, o)
	if err == nil {
		c.screen.names = append(c.screen.names, sb.Name())
	}
	if err != nil && o.Name != "" && errors.Is(err, sandbox.ErrOutcomeUnknown) && ctx.Err() == nil {
		if found, getErr := client.Get(ctx, o.Name, &sandbox.GetOptions{Extra: map[string]any{"__interactive": true}}); getErr == nil {
			return found, nil
		}
	}
	return sb, err
}

// getExisting looks a sandbox up and starts it; nil when there is none.
func (c *connection) getExisting(ctx context.Context, name string) (*sandbox.Sandbox, error) {
	client, err := c.connect(ctx)
	if err != nil {
		return nil, err
	}
	sb, err := client.Get(ctx, name, &sandbox.GetOptions{Extra: map[string]any{"__includeSystemRoutes": true}})
	if errors.Is(err, sandbox.ErrNotFound) {
		return nil, nil
	}
	return sb, err
}

// named looks up a sandbox by the name that was given.
func (c *connection) named(ctx context.Context, name string, resume bool) (*sandbox.Sandbox, error) {
	name, err := c.checkedName(name)
	if err != nil {
		return nil, err
	}
	return c.get(ctx, name, resume)
}

// checkedName refuses what can't be the name of a sandbox, before any request.
func (c *connection) checkedName(name string) (string, error) {
	if _, err := parseName(name); err != nil {
		return "", withHint(usagef("%v", err), "several names are divided by spaces; stop and rm take --name-prefix, --tag and --all, too")
	}
	if !slices.Contains(c.screen.names, name) {
		c.screen.names = append(c.screen.names, name)
	}
	return name, nil
}

// daemonArgument makes the program the daemon of --local. Behind it stand the
// directory, that of the emulator's state, and after how long without use it ends.
const daemonArgument = "__local-daemon"

// noBoundary is what is said of the isolation of local sandboxes.
const noBoundary = "It is not a security boundary: what runs in its sandboxes runs on this machine, as you."

// localDirs are the directories of the daemon and of its emulator's state.
func (s *stdio) localDirs() (dir, state string, err error) {
	dirs := s.dirs()
	if dirs.State == "" {
		return "", "", settings.ErrNoHome
	}
	return filepath.Join(dirs.State, "daemon"), filepath.Join(dirs.State, "local"), nil
}

// connectLocal connects with the user's emulator, which is started if it does not
// run.
func (c *connection) connectLocal(ctx context.Context) (*sandbox.Client, error) {
	dir, state, err := c.screen.localDirs()
	if err != nil {
		return nil, err
	}
	if c.completes {
		c.emulator, err = local.Use(ctx, dir)
	} else {
		c.emulator, err = local.Start(ctx, dir, daemonArgument, dir, state, local.IdleTime.String())
	}
	if err != nil {
		return nil, withHint(err, "its files are in %s, and what it says in %s", state, filepath.Join(dir, local.LogName))
	}
	c.emulator.OnLost(func() {
		// Requests would be repeated for minutes to a port that nobody listens on.
		c.fail(withHint(local.ErrGone, "%s has what it said last", try("local logs")))
	})
	e := c.emulator.Address
	if c.emulator.Started && !c.screen.opts.quiet {
		fmt.Fprintln(c.screen.err, prose(c.screen.err, c.screen.filled(fmt.Sprintf("Started the local emulator, in mode %s; %s ends it. %s", e.Mode, try("local stop"), noBoundary))))
	}
	if e.Version != c.version {
		c.screen.warn("the local emulator is of version "+e.Version+", and this program of "+c.version, "start it anew with: "+try("local restart"))
	}
	c.screen.source = "the local emulator"
	c.scope = auth.Credentials{Token: e.Token, TeamID: cmp.Or(c.given.scope, e.TeamID), ProjectID: cmp.Or(c.given.project, e.ProjectID)}
	return c.newClient(auth.Static(c.scope), e.URL)
}
