package auth

import (
	"log/slog"
	"net/http"
	"os"

	"golang.org/x/term"

	"github.com/go-vercel/sandbox/internal/oidc"
)

// Options say where [Default], [OIDC], [CLI] and [Device] look and how they reach
// the network. They are copied. Nil means the zero value: this process, its
// working directory, an HTTP client of their own.
type Options struct {
	// TeamID and ProjectID are the scope to get credentials for. Each function
	// says how it finds what is empty.
	TeamID    string
	ProjectID string

	// HTTPClient makes the requests for tokens: to vercel.com and its
	// subdomains, over HTTPS, following no redirect. Nil means a client of its own.
	HTTPClient *http.Client
	// LookupEnv reads a variable of the environment; HOME, XDG_DATA_HOME and
	// the like are among them. Nil means os.LookupEnv.
	LookupEnv func(key string) (string, bool)
	// Dir is where the search for a linked project begins. Empty is the working
	// directory.
	Dir string
	// Interactive says whether somebody sits at a terminal, for whom
	// [Default] uses the login of the CLI with a project inferred. Nil finds out:
	// standard input and output are terminals, CI is not "1" or
	// "true", and NODE_ENV is not "production".
	Interactive *bool
	// Logger is told which project was inferred, and when one was created. Nil
	// is silent.
	Logger *slog.Logger
}

func (o *Options) orDefault() *Options {
	if o == nil {
		return &Options{}
	}
	return new(*o)
}

// env reads a variable, "" when it is not set.
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
