package account

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/go-vercel/sandbox/auth"
	"github.com/go-vercel/sandbox/auth/device"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/screen"
	"github.com/go-vercel/sandbox/internal/oidc"
)

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
