// Package oidc finds, refreshes and stores the tokens that the Vercel CLI and
// the platform use: OIDC tokens of projects, and the CLI's own login.
package oidc

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"math"
	"strings"
	"time"
)

// Claims are the claims of a project's OIDC token. The API verifies the signature; here
// the claims only identify the team and project.
type Claims struct {
	TeamID    string
	ProjectID string
	// Expiry is zero for a token that does not expire.
	Expiry time.Time
}

// ParseClaims decodes the claims of an OIDC token of a project. The error never
// contains the token.
func ParseClaims(token string) (Claims, error) {
	var claims struct {
		TeamID    *string  `json:"owner_id"`
		ProjectID *string  `json:"project_id"`
		Expiry    *float64 `json:"exp"`
	}
	if err := payload(token, &claims); err != nil {
		return Claims{}, err
	}
	if claims.TeamID == nil || *claims.TeamID == "" {
		return Claims{}, errors.New("invalid Vercel OIDC token: its claim owner_id is missing")
	}
	if claims.ProjectID == nil || *claims.ProjectID == "" {
		return Claims{}, errors.New("invalid Vercel OIDC token: its claim project_id is missing")
	}
	c := Claims{TeamID: *claims.TeamID, ProjectID: *claims.ProjectID}
	if claims.Expiry != nil {
		c.Expiry = unix(*claims.Expiry)
	}
	return c, nil
}

// Expiry returns when a token expires by its own claims. It reports false if
// the token is not a JWT or has no expiry.
func Expiry(token string) (time.Time, bool) {
	var claims struct {
		Expiry *float64 `json:"exp"`
	}
	if payload(token, &claims) != nil || claims.Expiry == nil {
		return time.Time{}, false
	}
	return unix(*claims.Expiry), true
}

// Expired reports whether now is t or later. The zero t means no expiry.
func Expired(t, now time.Time) bool {
	return !t.IsZero() && !now.Before(t)
}

func payload(token string, v any) error {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return errors.New("invalid Vercel OIDC token: it is not a JWT")
	}
	// Padding and the other alphabet are not allowed in a JWT, but the official
	// tools accept them.
	text := strings.TrimRight(strings.NewReplacer("+", "-", "/", "_").Replace(parts[1]), "=")
	data, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		return errors.New("invalid Vercel OIDC token: its payload is not base64")
	}
	if json.Unmarshal(data, v) != nil {
		return errors.New("invalid Vercel OIDC token: its payload does not have the expected claims")
	}
	return nil
}

// unix converts seconds to a time. A number out of range becomes the nearest valid time.
func unix(seconds float64) time.Time {
	const year9999 = 253402300799
	whole, frac := math.Modf(min(max(seconds, 1), year9999))
	return time.Unix(int64(whole), int64(frac*1e9))
}

// EnvToken is the access token of an environment, with its team and project.
type EnvToken struct {
	Token string
	// Variable is the name of the variable with the token.
	Variable string
	// Scope is from VERCEL_TEAM_ID and VERCEL_PROJECT_ID.
	Scope Scope
	// Searches reports whether to search for a missing project. It is set for
	// VERCEL_AUTH_TOKEN, which only sandboxes use, and not for VERCEL_TOKEN, which other
	// tools use too.
	Searches bool
}

// TokenOfEnv returns the access token of an environment. Its Token is empty if there is
// none. Every program of this module uses it to read the variables.
func TokenOfEnv(getenv func(string) string) EnvToken {
	t := EnvToken{Token: getenv("VERCEL_AUTH_TOKEN"), Variable: "VERCEL_AUTH_TOKEN", Searches: true}
	t.Scope = Scope{TeamID: getenv("VERCEL_TEAM_ID"), ProjectID: getenv("VERCEL_PROJECT_ID")}
	if t.Token == "" {
		t.Token, t.Variable, t.Searches = getenv("VERCEL_TOKEN"), "VERCEL_TOKEN", false
	} else if t.Scope.TeamID == "" {
		t.Scope.ProjectID = "" // the platform sets the variable everywhere
	}
	return t
}
