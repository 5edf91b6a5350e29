// Package account finds the token, the team and the project, and connects to the API.
package account

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
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/line"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/local"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/screen"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/settings"
)

// Options are the options of all commands that select the account.
type Options struct {
	Token, Project, Scope string

	APIURL         string
	RequestTimeout time.Duration
	Local          bool
}

// accountOptions returns the options of this command line that name the account, without
// tokens.
func (c *Account) accountOptions() (words []string) {
	o := &c.Given
	if o.Local {
		words = append(words, "--local")
	}
	for _, option := range [][2]string{{"--api-url", o.APIURL}, {"--scope", o.Scope}, {"--project", o.Project}} {
		if option[1] != "" {
			words = append(words, option[0]+"="+option[1])
		}
	}
	return words
}

// Here returns the start of a command line that uses the same account as this one.
func (c *Account) Here(command string) []string {
	words := append([]string{"sandbox", command}, c.accountOptions()...)
	if c.Given.Local {
		return words
	}
	if c.Given.Scope == "" {
		words = append(words, "--scope="+c.Scope.TeamID)
	}
	if c.Given.Project == "" {
		words = append(words, "--project="+c.Scope.ProjectID)
	}
	return words
}

func (c *Account) Base() string { return cmp.Or(c.apiURL(), "https://vercel.com/api") }

func (c *Account) Close() error {
	if c.Client != nil {
		c.Client.CloseIdleConnections()
	}
	if c.emulator != nil {
		return c.emulator.Close()
	}
	return nil
}

// Create creates a sandbox. If the response is lost, Create looks the sandbox up by its
// name, if it has one.
func (c *Account) Create(ctx context.Context, o *sandbox.CreateOptions) (*sandbox.Sandbox, error) {
	client, err := c.Connect(ctx)
	if err != nil {
		return nil, err
	}
	sb, err := client.Create(ctx, o)
	if err == nil {
		c.screen.Names = append(c.screen.Names, sb.Name())
	}
	if err != nil && o.Name != "" && errors.Is(err, sandbox.ErrOutcomeUnknown) && ctx.Err() == nil {
		if found, getErr := client.Get(ctx, o.Name, &sandbox.GetOptions{Extra: map[string]any{"__interactive": true}}); getErr == nil {
			return found, nil
		}
	}
	return sb, err
}

// Named looks up a sandbox by the name on the command line.
func (c *Account) Named(ctx context.Context, name string, resume bool) (*sandbox.Sandbox, error) {
	name, err := c.CheckedName(name)
	if err != nil {
		return nil, err
	}
	return c.Get(ctx, name, resume)
}

// CheckedName returns an error for an invalid sandbox name. It makes no request. It also
// notes the name for the hints of later errors.
func (c *Account) CheckedName(name string) (string, error) {
	if _, err := line.ParseName(name); err != nil {
		return "", screen.WithHint(line.Usagef("%v", err), "separate names by spaces; stop and rm also take --name-prefix, --tag and --all")
	}
	if !slices.Contains(c.screen.Names, name) {
		c.screen.Names = append(c.screen.Names, name)
	}
	return name, nil
}

// DaemonArgument, as the first argument, makes the program the daemon of --local. The next
// arguments are the daemon's directory, the directory of the emulator's state, and the
// idle time after which the daemon ends.
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
