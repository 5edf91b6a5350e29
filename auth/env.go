package auth

import (
	"context"
	"os"

	"github.com/go-vercel/sandbox/internal/oidc"
)

// Names of the variables that this package reads, apart from those of access
// tokens (oidc.TokenOfEnv). It never sets any.
const (
	envToken     = "VERCEL_TOKEN"
	envTeamID    = "VERCEL_TEAM_ID"
	envProjectID = "VERCEL_PROJECT_ID"
	envOIDCToken = "VERCEL_OIDC_TOKEN"
	envOIDCFile  = "VERCEL_OIDC_TOKEN_FILE"
	envOnVercel  = "VERCEL_URL"
)

// Env returns a provider that reads VERCEL_AUTH_TOKEN, or otherwise VERCEL_TOKEN, with
// VERCEL_TEAM_ID and VERCEL_PROJECT_ID, at each request. It uses nothing else; [Default] also finds
// the project of a token. If only some are set, the error is a *[MissingError] that names the
// others. VERCEL_PROJECT_ID alone does not count, because the platform always sets it. If none is
// set, the error matches [ErrNoCredentials].
func Env() Provider {
	return ProviderFunc(func(context.Context) (Credentials, error) {
		t := oidc.TokenOfEnv(os.Getenv)
		if t.Token == "" && t.Scope.TeamID == "" {
			return Credentials{}, ErrNoCredentials
		}
		if missing := missingVariables(t); missing != nil {
			return Credentials{}, &MissingError{Missing: missing}
		}
		c := Credentials{Token: t.Token, TeamID: t.Scope.TeamID, ProjectID: t.Scope.ProjectID}
		if err := c.Validate(); err != nil {
			return Credentials{}, err
		}
		return c, nil
	})
}

// missingVariables returns the names of the variables that are not set.
func missingVariables(t oidc.EnvToken) (missing []string) {
	for _, v := range []struct{ name, value string }{
		{envToken, t.Token}, {envTeamID, t.Scope.TeamID}, {envProjectID, t.Scope.ProjectID},
	} {
		if v.value == "" {
			missing = append(missing, v.name)
		}
	}
	return missing
}
