package oidc

// EnvToken is the access token of an environment, with its team and project.
type EnvToken struct {
	Token string
	// Variable is the name of the variable with the token.
	Variable string
	// Scope is from VERCEL_TEAM_ID and VERCEL_PROJECT_ID.
	Scope Scope
	// Searches tells whether to search for a missing project: for VERCEL_AUTH_TOKEN, which
	// only sandboxes use, but not for VERCEL_TOKEN, which other tools use too.
	Searches bool
}

// TokenOfEnv returns the access token of an environment. Its Token is empty if there is none. Every
// program of this module uses it to read the variables.
func TokenOfEnv(getenv func(string) string) EnvToken {
	t := EnvToken{Token: getenv("VERCEL_AUTH_TOKEN"), Variable: "VERCEL_AUTH_TOKEN", Searches: true}
	t.Scope = Scope{TeamID: getenv("VERCEL_TEAM_ID"), ProjectID: getenv("VERCEL_PROJECT_ID")}
	if t.Token == "" {
		t.Token, t.Variable, t.Searches = getenv("VERCEL_TOKEN"), "VERCEL_TOKEN", false
	} else if t.Scope.TeamID == "" {
		t.Scope.ProjectID = "" // the platform sets it everywhere
	}
	return t
}
