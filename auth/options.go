package auth

import (
	"log/slog"
	"net/http"
	"os"

	"golang.org/x/term"

	"github.com/go-vercel/sandbox/internal/oidc"
)

// Options configure [Default], [OIDC], [CLI] and [Device]. They are copied. Nil
// means the zero value: the environment and working directory of this process,
// and a new HTTP client.
type Options struct {
	// TeamID and ProjectID are the scope of the credentials. How empty ones are
	// determined is documented at each function.
	TeamID    string
	ProjectID string

	// HTTPClient makes the requests for tokens: to vercel.com and its
	// subdomains, over HTTPS, without following redirects. Nil means a new
	// client.
	HTTPClient *http.Client
	// LookupEnv looks up an environment variable, among them HOME and
	// XDG_DATA_HOME. Nil means os.LookupEnv.
	LookupEnv func(key string) (string, bool)
	// Dir is where the search for a linked project begins. Empty means the
	// working directory.
	Dir string
	// Interactive reports whether the program runs at a terminal, in which case
	// [Default] uses the login of the CLI with an inferred project. Nil means
	// that it does if standard input and output are terminals, CI is not "1" or
	// "true", and NODE_ENV is not "production".
	Interactive *bool
	// Logger receives the name of an inferred or created project. Nil disables
	// logging.
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
