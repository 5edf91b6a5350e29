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
	"strings"
	"sync"
	"time"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/auth"
	"github.com/go-vercel/sandbox/auth/device"
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
	return err == nil && (u.Hostname() == "vercel.com" || strings.HasSuffix(u.Hostname(), ".vercel.com"))
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

// credentials finds the token and the project in the order of docs/cli.md.
func (c *Account) credentials(ctx context.Context) (auth.Provider, error) {
	host := oidc.NewHost(nil, c.screen.Env.Getenv, "")
	token, source, err := c.findToken(host)
	if err != nil {
		return nil, err
	}
	scope := c.givenScope(token)
	c.screen.Source = source
	c.warnAboutFiles(host, source)
	if name, ofFile := strings.CutSuffix(source, ofFile); ofFile && !c.mayHaveLogin() {
		return nil, c.notSentError(name + " of a .env file")
	}
	opts := &auth.Options{TeamID: scope.TeamID, ProjectID: scope.ProjectID, BaseURL: c.Base(), NoCreate: c.Looks}
	switch {
	case token == "":
		if _, err := host.LoginFile(); err != nil {
			return nil, fmt.Errorf("%w: %w", auth.ErrNoCredentials, err)
		}
		c.screen.Source = loginSource
		provider := auth.CLI(opts)
		if c.screen.Asks() && c.mayHaveLogin() {
			return auth.Chain(provider, device.Login(device.PromptOn(c.screen.Err), opts)), nil
		}
		return provider, nil
	case strings.HasPrefix(source, "VERCEL_OIDC_TOKEN") && c.Given.Scope == "" && c.Given.Project == "":
		// .env files may set VERCEL_OIDC_TOKEN, but must not name a token file or a
		// program. So look up the other variables in the environment of the process only.
		return auth.OIDC(&auth.Options{LookupEnv: func(key string) (string, bool) {
			if key == "VERCEL_OIDC_TOKEN" {
				return token, true
			}
			return c.screen.Env.Lookup(key)
		}}), nil
	}
	provider := auth.Token(token, opts)
	if _, err := provider.Credentials(ctx); err != nil && (scope.TeamID == "" || scope.ProjectID == "") {
		return nil, screen.WithHint(fmt.Errorf("could not determine the team and project: %w", err), "give them with --scope and --project")
	}
	return provider, nil
}

// loginSource describes the credentials of the Vercel CLI.
const loginSource = "the login of the Vercel CLI"

// ofFile marks credentials from a .env file of the current folder.
const ofFile = " (of a .env file)"

// warnAboutFiles warns if .env files of the current folder have selected the account
// although the user is logged in.
func (c *Account) warnAboutFiles(host *oidc.Host, source string) {
	what := ""
	if name, found := strings.CutSuffix(source, ofFile); found {
		what = name
	}
	for _, key := range []string{"SANDBOX_SCOPE", "SANDBOX_PROJECT"} {
		_, own := c.screen.Env.Lookup(key)
		if v, _ := c.screen.Env.LookupFiles(key); what == "" && v != "" && !own && c.Given.Scope == "" && c.Given.Project == "" {
			what = key
		}
	}
	login, err := host.LoginFile()
	if err == nil {
		_, err = os.Stat(login)
	}
	if what != "" && err == nil {
		c.screen.Warn(what+" of this folder's .env files is used instead of your login", screen.Try("whoami")+" shows the account")
	}
}

// findToken returns the token and its source, or two empty texts if there is none.
func (c *Account) findToken(host *oidc.Host) (token, source string, err error) {
	if c.Given.Token != "" {
		return c.Given.Token, "--token", nil
	}
	for _, from := range []struct {
		lookup func(string) (string, bool)
		suffix string
	}{{c.screen.Env.Lookup, ""}, {c.screen.Env.LookupFiles, ofFile}} {
		get := func(key string) string { v, _ := from.lookup(key); return v }
		if v := get("SANDBOX_TOKEN"); v != "" {
			return v, "SANDBOX_TOKEN" + from.suffix, nil
		}
		t := oidc.TokenOfEnv(get)
		complete := t.Searches || t.Scope.TeamID != "" && t.Scope.ProjectID != ""
		if t.Token != "" && complete {
			return t.Token, t.Variable + from.suffix, nil
		}
		if file := get("VERCEL_OIDC_TOKEN_FILE"); file != "" && from.suffix == "" {
			v, err := oidc.ReadTokenFile(file)
			if err != nil {
				return "", "", fmt.Errorf("VERCEL_OIDC_TOKEN_FILE: %w", err)
			}
			return v, "VERCEL_OIDC_TOKEN_FILE", nil
		}
		if v := get("VERCEL_OIDC_TOKEN"); v != "" {
			return v, "VERCEL_OIDC_TOKEN" + from.suffix, nil
		}
		if _, err := host.Linked(t.Scope); t.Token != "" && err == nil {
			return t.Token, t.Variable + from.suffix, nil
		}
	}
	return "", "", nil
}

// givenScope returns the team and the project that are known without a request.
func (c *Account) givenScope(token string) oidc.Scope {
	env := func(key string) string { v, _ := c.screen.Env.LookupAll(key); return v }
	s := oidc.Scope{
		TeamID:    cmp.Or(c.Given.Scope, env("SANDBOX_SCOPE"), env("VERCEL_TEAM_ID")),
		ProjectID: cmp.Or(c.Given.Project, env("SANDBOX_PROJECT")),
	}
	if env("VERCEL_TEAM_ID") != "" {
		s.ProjectID = cmp.Or(s.ProjectID, env("VERCEL_PROJECT_ID"))
	}
	if claims, err := oidc.ParseClaims(token); err == nil {
		s.TeamID, s.ProjectID = cmp.Or(s.TeamID, claims.TeamID), cmp.Or(s.ProjectID, claims.ProjectID)
	}
	return s
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
