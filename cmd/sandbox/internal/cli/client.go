package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/auth"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/settings"
	"github.com/go-vercel/sandbox/internal/oidc"
	"github.com/go-vercel/sandbox/internal/redact"
)

// connect makes the client of the run, once. The credentials are looked for
// first, so that the user hears of missing ones before anything else.
func (a *app) connect(ctx context.Context) (*sandbox.Client, error) {
	a.connecting.Lock()
	defer a.connecting.Unlock()
	if a.client != nil {
		return a.client, nil
	}
	if a.opts.local {
		return a.connectLocal(ctx)
	}
	provider, err := a.credentials(ctx)
	if err != nil {
		return nil, err
	}
	if a.scope, err = provider.Credentials(ctx); err != nil {
		return nil, err
	}
	if a.scope.FromLogin() && !a.mayHaveLogin() {
		return nil, &exitError{code: exitLogin, err: withHint(
			fmt.Errorf("the login of the Vercel CLI is not sent to %s, which %s names", redact.URL(a.apiURL()), baseURLVariable),
			"give a token for it, such as VERCEL_AUTH_TOKEN, or agree to the address with --api-url")}
	}
	base := a.apiURL()
	if a.urlFromEnvironment() {
		base = "" // the client looks there itself, and is as careful with tokens that it refreshes
	}
	return a.newClient(provider, base)
}

// baseURLVariable names the address of the API.
const baseURLVariable = "VERCEL_SANDBOX_BASE_URL"

// urlFromEnvironment reports whether the address of the API is one that whoever
// has set up this environment chose, and not the user.
func (a *app) urlFromEnvironment() bool {
	v, _ := a.env.lookup(baseURLVariable)
	return a.opts.apiURL == "" && v != ""
}

// mayHaveLogin reports whether the address of the API is to get the login, as in
// the SDK.
func (a *app) mayHaveLogin() bool { return !a.urlFromEnvironment() || a.atVercel() }

// atVercel reports whether the address of the API is one of Vercel's.
func (a *app) atVercel() bool {
	u, err := url.Parse(a.base())
	return err == nil && (u.Hostname() == "vercel.com" || strings.HasSuffix(u.Hostname(), ".vercel.com"))
}

// apiURL is the address of the API, "" for the SDK's own choice. The .env files
// have no say in it.
func (a *app) apiURL() string {
	if a.opts.apiURL != "" {
		return a.opts.apiURL
	}
	if v, _ := a.env.lookup(baseURLVariable); v != "" {
		return v
	}
	if p, err := a.profile(); err == nil {
		return p.APIURL
	}
	return ""
}

func (a *app) newClient(provider auth.Provider, base string) (*sandbox.Client, error) {
	// Who waits at a terminal wants to know why.
	opts := &sandbox.ClientOptions{Credentials: provider, BaseURL: base, UserAgent: "sandbox-cli/" + Version(), MaxRateLimitWait: 20 * time.Second}
	if d := a.opts.requestTimeout; d > 0 {
		transport := http.DefaultTransport.(*http.Transport).Clone()
		transport.ResponseHeaderTimeout = d
		opts.HTTPClient = &http.Client{Transport: transport}
	}
	if a.opts.debug != "" {
		var w io.Writer = a.err
		if a.opts.debug != "-" {
			f, err := os.OpenFile(a.opts.debug, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
			if err != nil {
				return nil, err
			}
			w = f
		}
		opts.Observer = &events{w: w}
	}
	client, err := sandbox.NewClient(opts)
	a.client = client
	return client, err
}

// credentials finds the token and the project in the order that docs/cli.md has.
func (a *app) credentials(ctx context.Context) (auth.Provider, error) {
	profile, err := a.profile()
	if err != nil {
		return nil, err
	}
	host := oidc.NewHost(nil, a.getenv, "")
	token, source := a.token(profile)
	scope, err := a.linkedScope(host, a.givenScope(profile, token))
	if err != nil {
		return nil, err
	}
	a.source = source
	a.tellOfFiles(host, profile, source)
	switch {
	case token == "":
		login := &auth.Options{TeamID: scope.TeamID, ProjectID: scope.ProjectID}
		a.source = "the login of the Vercel CLI"
		provider := auth.CLI(login)
		if a.asks() && a.mayHaveLogin() {
			return auth.Chain(provider, auth.Device(a.showCode, login)), nil
		}
		return provider, nil
	case strings.HasPrefix(source, "VERCEL_OIDC_TOKEN") && a.opts.scope == "" && a.opts.project == "":
		return auth.OIDC(&auth.Options{LookupEnv: a.env.lookupAll}), nil
	case (scope.TeamID == "" || scope.ProjectID == "") && !a.atVercel():
		// Only Vercel knows, and a token of another service is not for it.
		return nil, withHint(errors.New("could not determine the team and project"), "give them with --scope and --project")
	case scope.TeamID == "" || scope.ProjectID == "":
		found, err := host.InferScope(ctx, token, scope.TeamID)
		if err != nil {
			return nil, withHint(fmt.Errorf("could not determine the team and project: %w", err), "give them with --scope and --project")
		}
		if scope.TeamID == "" {
			scope.TeamID = found.TeamID
		}
		if scope.ProjectID == "" {
			scope.ProjectID = found.ProjectID
		}
	}
	return auth.Static(auth.Credentials{Token: token, TeamID: scope.TeamID, ProjectID: scope.ProjectID}), nil
}

// ofFile marks credentials that come from a .env file of the folder.
const ofFile = " (of a .env file)"

// tellOfFiles says that the folder one happens to stand in, and not one's login or
// profile, has chosen the account that everything goes to.
func (a *app) tellOfFiles(host *oidc.Host, profile settings.Profile, source string) {
	what := ""
	if name, found := strings.CutSuffix(source, ofFile); found {
		what = name
	}
	for _, key := range []string{"SANDBOX_SCOPE", "SANDBOX_PROJECT"} {
		_, own := a.env.lookup(key)
		if v, _ := a.env.lookupFiles(key); what == "" && v != "" && !own && a.opts.scope == "" && a.opts.project == "" {
			what = key
		}
	}
	login, err := host.LoginFile()
	if err == nil {
		_, err = os.Stat(login)
	}
	if what != "" && (err == nil || profile != (settings.Profile{})) {
		a.warn(what+" of this folder's .env files is used, and not your login or profile", "sandbox whoami shows the account")
	}
}

func (a *app) getenv(key string) string {
	v, _ := a.env.lookup(key)
	return v
}

// token finds the token, and says where.
func (a *app) token(profile settings.Profile) (token, source string) {
	if a.opts.token != "" {
		return a.opts.token, "--token"
	}
	if a.opts.profile != "" && profile.Token != "" {
		return profile.Token, "profile " + a.opts.profile
	}
	for _, from := range []struct {
		lookup func(string) (string, bool)
		suffix string
	}{{a.env.lookup, ""}, {a.env.lookupFiles, ofFile}} {
		get := func(key string) string { v, _ := from.lookup(key); return v }
		for _, key := range []string{"SANDBOX_TOKEN", "VERCEL_AUTH_TOKEN"} {
			if v := get(key); v != "" {
				return v, key + from.suffix
			}
		}
		if v := get("VERCEL_TOKEN"); v != "" && get("VERCEL_TEAM_ID") != "" && get("VERCEL_PROJECT_ID") != "" {
			return v, "VERCEL_TOKEN" + from.suffix
		}
		if v := get("VERCEL_OIDC_TOKEN"); v != "" {
			return v, "VERCEL_OIDC_TOKEN" + from.suffix
		}
	}
	if profile.Token != "" {
		return profile.Token, "the default profile"
	}
	return "", ""
}

// linkedScope completes a team and a project by those that the folder is linked
// to. A link of another team than the given one is left alone.
func (a *app) linkedScope(host *oidc.Host, s oidc.Scope) (oidc.Scope, error) {
	if s.TeamID != "" && s.ProjectID != "" {
		return s, nil
	}
	link, err := host.Link()
	switch {
	case errors.Is(err, oidc.ErrNothing):
		return s, nil
	case err != nil:
		return s, err
	case link.TeamID != "" && (s.TeamID == "" || s.TeamID == link.TeamID):
		return oidc.Scope{TeamID: link.TeamID, ProjectID: first(s.ProjectID, link.ProjectID)}, nil
	}
	return s, nil
}

// givenScope is what is known of the team and the project without asking anybody.
func (a *app) givenScope(profile settings.Profile, token string) oidc.Scope {
	env := func(key string) string { v, _ := a.env.lookupAll(key); return v }
	var forced settings.Profile
	if a.opts.profile != "" {
		forced = profile
	}
	s := oidc.Scope{
		TeamID:    first(a.opts.scope, forced.Team, env("SANDBOX_SCOPE"), env("VERCEL_TEAM_ID")),
		ProjectID: first(a.opts.project, forced.Project, env("SANDBOX_PROJECT")),
	}
	if env("VERCEL_TEAM_ID") != "" {
		s.ProjectID = first(s.ProjectID, env("VERCEL_PROJECT_ID"))
	}
	if claims, err := oidc.ParseClaims(token); err == nil {
		s.TeamID, s.ProjectID = first(s.TeamID, claims.TeamID), first(s.ProjectID, claims.ProjectID)
	}
	if s.TeamID == "" || s.TeamID == profile.Team {
		s.TeamID, s.ProjectID = first(s.TeamID, profile.Team), first(s.ProjectID, profile.Project)
	}
	return s
}

// profile is the profile in force; the zero one when there is none.
func (a *app) profile() (settings.Profile, error) {
	dirs, err := settings.FindDirs(a.env.lookup)
	if err != nil {
		return settings.Profile{}, err
	}
	config, err := dirs.ReadConfig()
	if err != nil {
		return settings.Profile{}, err
	}
	name := a.opts.profile
	if name == "" {
		name = config.Profile
	}
	if name == "" {
		return settings.Profile{}, nil
	}
	p, ok := config.Profiles[name]
	if !ok {
		return settings.Profile{}, usagef("there is no profile %s", quote(name))
	}
	return p, nil
}

// asks reports whether questions may be asked: somebody sits at a terminal, and
// neither an option nor CI forbids it.
func (a *app) asks() bool {
	ci, _ := a.env.lookup("CI")
	return !a.opts.noInput && (ci == "" || ci == "0" || ci == "false") && isTerminal(a.in) && a.err.Terminal
}

func (a *app) showCode(_ context.Context, code auth.DeviceCode) error {
	address := code.VerificationURLComplete
	if address == "" {
		address = code.VerificationURL
	}
	_, err := fmt.Fprintf(a.err, "Visit %s and enter the code %s (valid for %s).\n", address, code.UserCode,
		time.Until(code.ExpiresAt).Round(time.Minute))
	return err
}

func (a *app) credentialHint() string {
	if a.source == "" {
		return "run sandbox login, or set VERCEL_AUTH_TOKEN"
	}
	return "the token comes from " + a.source + "; sandbox doctor tells more, sandbox login gets a new one"
}

// get looks a sandbox up by its name. It is started only if resume says so.
func (a *app) get(ctx context.Context, name string, resume bool) (*sandbox.Sandbox, error) {
	client, err := a.connect(ctx)
	if err != nil {
		return nil, err
	}
	opts := &sandbox.GetOptions{NoResume: !resume}
	if resume {
		opts.Private = map[string]any{"__includeSystemRoutes": true}
	}
	sb, err := client.Get(ctx, name, opts)
	if errors.Is(err, sandbox.ErrNotFound) {
		if near := a.nearestName(ctx, client, name); near != "" {
			return nil, withHint(err, "did you mean %s? Run sandbox ls --all to see the sandboxes in this project", near)
		}
	}
	return sb, err
}
