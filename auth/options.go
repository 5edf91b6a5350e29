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

// Options configure [Default], [Token], [OIDC] and [CLI], and the login of package device. They
// are copied. Nil means the zero value: the environment and working directory of this process, and
// a new HTTP client.
type Options struct {
	// TeamID and ProjectID are the scope of the credentials. Each function documents how it
	// determines empty ones.
	TeamID    string
	ProjectID string
	// NoCreate makes the search for a project fail with [ErrNoProject] instead of creating
	// the default project. The search then changes nothing at Vercel, but still refreshes a
	// login that is about to expire.
	NoCreate bool

	// HTTPClient makes the requests for tokens and projects: to vercel.com and its
	// subdomains, over HTTPS, and to BaseURL, without following redirects. Nil
	// means a new client.
	HTTPClient *http.Client
	// LookupEnv looks up an environment variable, including HOME and XDG_DATA_HOME. Nil
	// means os.LookupEnv.
	LookupEnv func(key string) (string, bool)
	// BaseURL is the address of the API that a given token is for (see [Token]), where its
	// project is looked up. Set it to the BaseURL of sandbox.ClientOptions. Empty means the
	// variable VERCEL_SANDBOX_BASE_URL, or otherwise https://vercel.com/api. An unencrypted
	// address must be on this machine. The CLI's login is only ever sent to Vercel.
	BaseURL string
	// Dir is where the search for a linked project starts. Empty means the working
	// directory.
	Dir string
	// Interactive reports whether the program runs at a terminal, in which case
	// [Default] uses the login of the CLI with an inferred project. Nil means
	// that it does if standard input and output are terminals, CI is not "1" or
	// "true", and NODE_ENV is not "production".
	Interactive *bool
	// Logger receives the name of an inferred or created project. With a Logger, [Token]
	// makes up to two more requests to find the name. Nil disables logging.
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
