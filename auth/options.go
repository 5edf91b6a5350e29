package auth

import (
	"cmp"
	"fmt"
	"log/slog"
	"net/http"
	"os"

	"golang.org/x/term"

	"github.com/go-vercel/sandbox/internal/oidc"
)

// Options configure [Default], [Token], [OIDC] and [CLI], and a login of
// package device. They are copied. Nil means the zero value: the environment and working directory of this process,
// and a new HTTP client.
type Options struct {
	// TeamID and ProjectID are the scope of the credentials. How empty ones are
	// determined is documented at each function.
	TeamID    string
	ProjectID string
	// NoCreate keeps the search for a project from creating the default project:
	// it fails with [ErrNoProject] where it otherwise would. Such a search changes
	// nothing at Vercel; a login that is about to expire is refreshed nevertheless.
	NoCreate bool

	// HTTPClient makes the requests for tokens and projects: to vercel.com and its
	// subdomains, over HTTPS, and to BaseURL, without following redirects. Nil
	// means a new client.
	HTTPClient *http.Client
	// LookupEnv looks up an environment variable, among them HOME and
	// XDG_DATA_HOME. Nil means os.LookupEnv.
	LookupEnv func(key string) (string, bool)
	// BaseURL is the address of the API that a given token is for (see [Token]),
	// which is asked for its project: that of sandbox.ClientOptions. Empty means
	// that of the variable VERCEL_SANDBOX_BASE_URL, or else https://vercel.com/api.
	// One that is not encrypted must be of this machine. The CLI's login is sent to
	// Vercel alone.
	BaseURL string
	// Dir is where the search for a linked project begins. Empty means the
	// working directory.
	Dir string
	// Interactive reports whether the program runs at a terminal, in which case
	// [Default] uses the login of the CLI with an inferred project. Nil means
	// that it does if standard input and output are terminals, CI is not "1" or
	// "true", and NODE_ENV is not "production".
	Interactive *bool
	// Logger receives the name of an inferred or created project, for which [Token]
	// then makes up to two more requests. Nil disables logging.
	Logger *slog.Logger
}

func (o *Options) orDefault() *Options {
	if o == nil {
		return &Options{}
	}
	return new(*o)
}

// env returns the value of a variable, "" if it is not set.
func (o *Options) env(key string) string {
	lookup := o.LookupEnv
	if lookup == nil {
		lookup = os.LookupEnv
	}
	value, _ := lookup(key)
	return value
}

// base returns the address of the API that a given token is for.
func (o *Options) base() (string, error) {
	base := cmp.Or(o.BaseURL, o.env(oidc.BaseURLVariable), oidc.DefaultBaseURL)
	u, err := oidc.Address(base, false)
	if err != nil {
		return "", fmt.Errorf("sandbox: credentials: the address of the API: %w", err)
	}
	return u.String(), nil
}

func (o *Options) host() *oidc.Host {
	return oidc.NewHost(o.HTTPClient, o.env, o.Dir)
}

func (o *Options) interactive() bool {
	if o.Interactive != nil {
		return *o.Interactive
	}
	if ci := o.env("CI"); ci == "1" || ci == "true" || o.env("NODE_ENV") == "production" {
		return false
	}
	return term.IsTerminal(int(os.Stdin.Fd())) && term.IsTerminal(int(os.Stdout.Fd()))
}
