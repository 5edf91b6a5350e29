package oidc

// EnvToken is the access token that an environment gives, with what the
// environment says of its project.
type EnvToken struct {
	Token string
	// Variable is the one that holds the token.
	Variable string
	// Scope is of VERCEL_TEAM_ID and VERCEL_PROJECT_ID.
	Scope Scope
	// Searches reports whether a missing project is searched for. VERCEL_AUTH_TOKEN
	// is for sandboxes alone; VERCEL_TOKEN is set for other tools too, and no project
	// is created for it.
	Searches bool
}

// TokenOfEnv returns the access token of an environment; its Token is empty if
// there is none. Every program of this module reads the variables by it.
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
