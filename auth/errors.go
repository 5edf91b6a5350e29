package auth

import (
	"errors"
	"strings"
)

// ErrNoCredentials matches the error of a provider that has no credentials: no
// variable is set, no project is linked, there is no login. [Chain] then
// calls the next provider.
var ErrNoCredentials = errors.New("sandbox: no credentials found")

// ErrNoProject matches the error of a search with [Options].NoCreate if there is
// no project to use: without NoCreate, the default project would be created.
var ErrNoProject = errors.New("sandbox: no project found")

// MissingError reports that only some of the token, the team and the project
// are known.
type MissingError struct {
	// Missing names what is missing: fields of Credentials, or environment
	// variables.
	Missing []string
	// Link is why the linked project does not complete the credentials; nil if no link was
	// looked up.
	Link error
}

// Error returns a message that names what is missing.
func (e *MissingError) Error() string {
	s := "sandbox: incomplete credentials: missing " + strings.Join(e.Missing, ", ")
	if e.Link != nil {
		s += "; " + e.Link.Error()
	}
	return s
}

// Unwrap returns Link.
func (e *MissingError) Unwrap() error { return e.Link }

// OIDCError reports that an OIDC token of the platform or the CLI is not
// available, and what to do about it.
type OIDCError struct {
	// OnVercel reports whether the program runs on Vercel, which determines the
	// advice.
	OnVercel bool
	// Err is the cause. It matches [ErrNoCredentials] if there was no token at
	// all.
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

// remedyLocal is for users of Go programs, who may not have Node.
const remedyLocal = "Set VERCEL_TOKEN, VERCEL_TEAM_ID and VERCEL_PROJECT_ID, or VERCEL_AUTH_TOKEN alone,\n" +
	"or link the project with `vercel link`, and load VERCEL_OIDC_TOKEN from the file that `vercel env pull` writes.\n" +
	"Without an account, run it on the emulator: `go run github.com/go-vercel/sandbox/cmd/sandbox-emulator@latest go run .`"

// Advice returns the official SDK's text on what to do.
func (e *OIDCError) Advice() string {
	if e.OnVercel {
		return adviceOnVercel
	}
	return adviceLocal
}

// Error returns the cause and what to do.
func (e *OIDCError) Error() string {
	remedy := remedyLocal
	if e.OnVercel {
		remedy = adviceOnVercel
	}
	cause := ErrNoCredentials
	if e.Err != nil {
		cause = e.Err
	}
	return "sandbox: " + strings.TrimPrefix(cause.Error(), "sandbox: ") + "\n" + remedy
}

// Unwrap returns Err.
func (e *OIDCError) Unwrap() error { return e.Err }
