package sandbox

import (
	"context"
	"os"
)

// Names of the variables that this package reads. credentials*.go are its only
// readers of the environment, and nothing in it writes to it.
const (
	envToken     = "VERCEL_TOKEN"
	envTeamID    = "VERCEL_TEAM_ID"
	envProjectID = "VERCEL_PROJECT_ID"
	envOIDCToken = "VERCEL_OIDC_TOKEN"
	envOnVercel  = "VERCEL_URL"
	envBaseURL   = "VERCEL_SANDBOX_BASE_URL"
)

// baseURLFromEnv is the API's address that the environment gives, or "".
func baseURLFromEnv() string {
	return os.Getenv(envBaseURL)
}

// EnvCredentials gives what VERCEL_TOKEN, VERCEL_TEAM_ID and VERCEL_PROJECT_ID
// say at the time of each request. When some are set and others not, the error
// is a *MissingCredentialsError that names the missing ones; VERCEL_PROJECT_ID
// alone counts as nothing, because the platform sets it everywhere. With none
// the error matches ErrNoCredentials.
func EnvCredentials() CredentialsProvider {
	return CredentialsFunc(func(context.Context) (Credentials, error) {
		return credentialsFromEnv(os.Getenv)
	})
}

func credentialsFromEnv(getenv func(string) string) (Credentials, error) {
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
		return Credentials{}, &MissingCredentialsError{Missing: missing}
	}
	if err := c.validate(); err != nil {
		return Credentials{}, err
	}
	return c, nil
}
