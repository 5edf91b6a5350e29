package auth

import (
	"errors"
	"strings"
)

// ErrNoCredentials is matched by the error of a provider that has nothing to
// give: no variable set, no project linked, nobody logged in. [Chain] then asks
// the next one.
var ErrNoCredentials = errors.New("sandbox: no credentials found")

// MissingError says that some of the token, the team and the
// project are given and others are not.
type MissingError struct {
	// Missing names what is missing: fields of Credentials, or environment
	// variables.
	Missing []string
}

// Error names what is missing.
func (e *MissingError) Error() string {
	return "sandbox: incomplete credentials: missing " + strings.Join(e.Missing, ", ")
}

// OIDCError says that the OIDC token that the platform or the CLI provides is
// not to be had, and what to do about it.
type OIDCError struct {
	// OnVercel reports whether the program runs on Vercel, where what to do differs.
	OnVercel bool
	// Err is what went wrong. It matches [ErrNoCredentials] when there was
	// nothing to begin with.
	Err error
}

const (
	adviceLocal = "Could not get credentials from OIDC context.\n" +
		"Please link your Vercel project using `npx vercel link`.\n" +
		"Then, pull an initial OIDC token with `npx vercel env pull`\n" +
		"and retry.\n" +
		"╰▶ Make sure you are loading `.env.local` correctly, or passing $VERCEL_OIDC_TOKEN directly."
	adviceOnVercel = "Could not get credentials from OIDC context.\n" +
		"Please make sure OIDC is set up for your project\n" +
		"╰▶ Docs: https://vercel.com/docs/oidc"
)

// Advice says what to do, in the words of the official SDK.
func (e *OIDCError) Advice() string {
	if e.OnVercel {
		return adviceOnVercel
	}
	return adviceLocal
}

// Error gives the cause and the advice.
func (e *OIDCError) Error() string {
	if e.Err == nil {
		return "sandbox: " + e.Advice()
	}
	return "sandbox: " + strings.TrimPrefix(e.Err.Error(), "sandbox: ") + "\n" + e.Advice()
}

// Unwrap returns Err.
func (e *OIDCError) Unwrap() error { return e.Err }
