package auth

import (
	"context"
	"os"
)

// Names of the variables that this package reads. It never sets any.
const (
	envToken     = "VERCEL_TOKEN"
	envTeamID    = "VERCEL_TEAM_ID"
	envProjectID = "VERCEL_PROJECT_ID"
	envOIDCToken = "VERCEL_OIDC_TOKEN"
	envOnVercel  = "VERCEL_URL"
)

// Env returns a provider that reads VERCEL_TOKEN, VERCEL_TEAM_ID and
// VERCEL_PROJECT_ID at each request. If only some are set, the error is a
// *[MissingError] that names the others; VERCEL_PROJECT_ID alone does not
// count, because the platform always sets it. If none is set, the error matches
// [ErrNoCredentials].
func Env() Provider {
	return ProviderFunc(func(context.Context) (Credentials, error) {
		return fromEnv(os.Getenv)
	})
}

func fromEnv(getenv func(string) string) (Credentials, error) {
	c := Credentials{Token: getenv(envToken), TeamID: getenv(envTeamID), ProjectID: getenv(envProjectID)}
	if c.Token == "" && c.TeamID == "" {
		return Credentials{}, ErrNoCredentials
	}
	var missing []string
	for _, v := range []struct{ name, value string }{
		{envToken, c.Token}, {envTeamID, c.TeamID}, {envProjectID, c.ProjectID},
	} {
		if v.value == "" {
			missing = append(missing, v.name)
		}
	}
	if missing != nil {
		return Credentials{}, &MissingError{Missing: missing}
	}
	if err := c.Validate(); err != nil {
		return Credentials{}, err
	}
	return c, nil
}
