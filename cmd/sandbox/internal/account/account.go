// Package account finds the token, the team and the project, and connects to the API.
package account

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/auth"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/line"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/local"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/screen"
	"github.com/go-vercel/sandbox/internal/api"
	"github.com/go-vercel/sandbox/internal/oidc"
	"github.com/go-vercel/sandbox/internal/redact"
)

// Account connects a command to the API. It has the options that select the account and,
// once connected, the client.
type Account struct {
	screen *screen.Screen

	Given      Options
	version    string     // the version of this program
	connecting sync.Mutex // a command may look up several sandboxes at the same time
	Client     *sandbox.Client
	Scope      auth.Credentials
	emulator   *local.Connection // the connection to the emulator of --local
	Completes  bool              // this is a completion, which must not start the emulator
	Looks      bool              // the command must not create a project
	fail       func(error)       // prints the error and ends the program at once
}

// New returns the account of a command line. version is the program's.
func New(s *screen.Screen, version string) *Account {
	c := &Account{screen: s, version: version, fail: func(err error) { os.Exit(s.Report(err)) }}
	s.AccountWords = c.accountOptions
	return c
}

// Connect returns the client. The first call gets the credentials and creates the client.
// Commands call Connect early, so that an error about missing credentials comes first.
func (c *Account) Connect(ctx context.Context) (*sandbox.Client, error) {
	c.connecting.Lock()
	defer c.connecting.Unlock()
	if c.Client != nil {
		return c.Client, nil
	}
	if c.Given.Local {
		return c.connectLocal(ctx)
	}
	provider, err := c.credentials(ctx)
	if err != nil {
		return nil, err
	}
	if c.Scope, err = provider.Credentials(ctx); err != nil {
		if _, unreadable := errors.AsType[*fs.PathError](err); unreadable { // the file of the login can't be read
			err = &screen.ExitError{Code: screen.ExitLogin, Err: screen.WithHint(err, "set VERCEL_AUTH_TOKEN instead")}
		}
		if _, away := errors.AsType[*url.Error](err); away {
			err = &screen.ExitError{Code: screen.ExitLogin, Err: screen.WithHint(err, "logging in needs Vercel, which did not answer; set VERCEL_AUTH_TOKEN instead, or use --local, which needs no account")}
		}
		return nil, err
	}
	if c.Scope.FromLogin() && !c.mayHaveLogin() {
		return nil, c.notSentError("the login of the Vercel CLI")
	}
	base := c.apiURL()
	if c.urlFromEnvironment() {
		base = "" // the client reads the variable itself, and then also protects tokens that it refreshes
	}
	return c.newClient(provider, base)
}

// notSentError returns the error for a credential that must not be sent to the address that
// the environment sets.
func (c *Account) notSentError(what string) error {
	return &screen.ExitError{Code: screen.ExitLogin, Err: screen.WithHint(
		fmt.Errorf("%s is not sent to %s, which %s names", what, redact.URL(c.apiURL()), baseURLVariable),
		"give a token for it, such as VERCEL_AUTH_TOKEN, or agree to the address with --api-url")}
}

// baseURLVariable is the environment variable with the address of the API.
const baseURLVariable = "VERCEL_SANDBOX_BASE_URL"

// urlFromEnvironment reports whether the address of the API comes from the environment,
// and not from the command line.
func (c *Account) urlFromEnvironment() bool {
	v, _ := c.screen.Env.Lookup(baseURLVariable)
	return c.Given.APIURL == "" && v != ""
}

// mayHaveLogin reports whether the login, or a token of a .env file, may be sent to the
// API's address. The user did not choose them for an address from the environment, so such
// an address gets them only if it is Vercel's.
func (c *Account) mayHaveLogin() bool { return !c.urlFromEnvironment() || c.atVercel() }

// atVercel reports whether the API's address is one of Vercel's.
func (c *Account) atVercel() bool {
	u, err := url.Parse(c.Base())
	return err == nil && oidc.AtVercel(u)
}

// apiURL returns the API's address, or "" for the SDK's default. .env files can't set it.
func (c *Account) apiURL() string {
	return cmp.Or(c.Given.APIURL, c.screen.Env.Getenv(baseURLVariable))
}

func (c *Account) newClient(provider auth.Provider, base string) (*sandbox.Client, error) {
	// MaxRateLimitWait is short: a user at a terminal wants to know why nothing happens.
	opts := &sandbox.ClientOptions{Credentials: provider, BaseURL: base, UserAgent: "sandbox-cli/" + c.version, MaxRateLimitWait: 20 * time.Second}
	if d := c.Given.RequestTimeout; d > 0 {
		transport := api.DefaultTransport()
		transport.ResponseHeaderTimeout = d
		opts.HTTPClient = &http.Client{Transport: transport}
	}
	if c.screen.Opts.Debug != "" {
		var w io.Writer = c.screen.Err
		if c.screen.Opts.Debug != "-" {
			f, err := os.OpenFile(c.screen.Opts.Debug, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
			if err != nil {
				return nil, err
			}
			w = f
		}
		opts.Observer = &eventPrinter{w: w}
	}
	client, err := sandbox.NewClient(opts)
	c.Client = client
	return client, err
}

// Get looks up a sandbox by its name. It starts the sandbox only if resume is set.
func (c *Account) Get(ctx context.Context, name string, resume bool) (*sandbox.Sandbox, error) {
	client, err := c.Connect(ctx)
	if err != nil {
		return nil, err
	}
	opts := &sandbox.GetOptions{NoResume: !resume}
	if resume {
		opts.Extra = map[string]any{"__includeSystemRoutes": true}
	}
	return client.Get(ctx, name, opts)
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
	if err := c.CheckName(name); err != nil {
		return nil, err
	}
	return c.Get(ctx, name, resume)
}

// CheckName returns an error for an invalid sandbox name. It makes no request. It also
// notes the name for the hints of later errors.
func (c *Account) CheckName(name string) error {
	if _, err := line.ParseName(name); err != nil {
		return screen.WithHint(line.Usagef("%v", err), "separate names by spaces; stop and rm also take --name-prefix, --tag and --all")
	}
	if !slices.Contains(c.screen.Names, name) {
		c.screen.Names = append(c.screen.Names, name)
	}
	return nil
}
