package sandbox

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"reflect"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode"

	"github.com/go-vercel/sandbox/auth"
	"github.com/go-vercel/sandbox/internal/api"
	"github.com/go-vercel/sandbox/internal/oidc"
	"github.com/go-vercel/sandbox/internal/redact"
	"github.com/go-vercel/sandbox/observe"
)

// Version returns the version of this SDK, as sent in the User-Agent header:
// the module version recorded in the running binary, or that of the next
// release if there is none, as in a checkout.
func Version() string { return version() }

const (
	module      = "github.com/go-vercel/sandbox"
	nextRelease = "0.1.0"
)

var version = sync.OnceValue(func() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return nextRelease
	}
	for _, m := range append([]*debug.Module{&info.Main}, info.Deps...) {
		if m.Path == module && m.Replace == nil && strings.HasPrefix(m.Version, "v") {
			return strings.TrimPrefix(m.Version, "v")
		}
	}
	return nextRelease
})

// ClientOptions configures a [Client]. The zero value takes everything from
// the environment.
type ClientOptions struct {
	// Credentials supplies the credentials of every request. Nil means
	// [auth.Default] with this HTTPClient, Logger and BaseURL.
	Credentials auth.Provider
	// BaseURL is the address of the API. If empty, the environment variable
	// VERCEL_SANDBOX_BASE_URL is used, or else https://vercel.com/api. It must be
	// an https URL, or an http URL of this machine: 127.0.0.1, [::1] or localhost.
	//
	// If the address comes from the environment, the Vercel CLI's login is sent only to
	// vercel.com and its subdomains.
	BaseURL string
	// AllowHTTP permits an http BaseURL for any host. Anyone who can observe
	// the traffic can then read the credentials.
	AllowHTTP bool
	// HTTPClient sends the requests. Nil means a client with its own connection
	// pool. Its Timeout must be zero, since it would cut streams; limit calls
	// with their contexts. Terminals are opened with it too, and their token is
	// part of the URL: a transport that records URLs records the token.
	HTTPClient *http.Client
	// Observer receives events of requests, commands, resumes and so on. Nil costs
	// nothing.
	Observer observe.Observer
	// Logger receives a record at the end of most of the events that Observer receives:
	// successes at debug level, costs that the program did not request at info level,
	// retries and repairs at warning level, and problems that need action at error level.
	// Secrets and the arguments of commands are never logged. Nil disables logging.
	Logger *slog.Logger
	// MaxRetries limits how often a failed request is retried. The package documentation says
	// which requests are safe to retry. Zero means twice; a negative number means not at all.
	// Retries after a rate limit are counted apart; see MaxRateLimitWait.
	MaxRetries int
	// RetryWait is the pause before the first retry. Zero means 400 ms. It doubles
	// with each retry and is multiplied by a random factor between one and two.
	RetryWait time.Duration
	// Reattach limits how interrupted output streams are resumed. Nil means the
	// defaults of [ReattachOptions].
	Reattach *ReattachOptions
	// ServerCommandIDs is experimental: it lets the service choose the IDs of
	// commands. By default the client generates one and sends it with the command,
	// so that a command whose response was lost can be found again. If the service
	// ignores or rejects such IDs, the client notices at the first command, logs it,
	// and continues as if this field were set.
	ServerCommandIDs bool
	// UserAgent is prepended to the SDK's own User-Agent header. Like the
	// official tools, the SDK also names the coding agent that the program runs
	// in, if any, unless VERCEL_TELEMETRY_DISABLED or
	// VERCEL_SANDBOX_TELEMETRY_DISABLED is set to a non-empty value.
	UserAgent string
	// MaxRateLimitWait limits how long one request waits in total for the rate limits
	// that the API reports. While a limit is exhausted, requests that count against it
	// wait for its reset instead of being refused. They are sent in the order in which
	// they were made, except that requests which end a running command or keep it running
	// go first. Zero means two minutes. A request that would wait longer, or beyond its
	// context's deadline, fails at once with an error that matches [ErrRateLimited]. If
	// the value is negative, no request waits, and a refused request is retried like any
	// failed one.
	MaxRateLimitWait time.Duration
	// Hooks, if not nil, returns the hooks of a sandbox for calls whose options have
	// none, and for handles from JSON. Either hook may be nil. It is called whenever a
	// hook may be due, and must return quickly. For a sandbox that is about to be
	// created, sb contains only the name and the tags.
	Hooks func(sb Info) (onCreate, onResume Hook)
}

// ReattachOptions is experimental. It limits how a command's output stream is resumed
// after its connection broke. It also limits the search for a command if the response to
// its start was lost and the API can't be reached. That search ends after 45 seconds at
// the latest. The limits apply to attempts without progress: a stream that advances a
// little each time is resumed for as long as the command runs.
type ReattachOptions struct {
	// Attempts is how often in a row a broken stream is reopened without
	// progress. Zero means 20; a negative number disables resuming.
	Attempts int
	// Limit is how long a stream may go without progress while it is being
	// resumed. Zero means five minutes.
	Limit time.Duration
	// Wait is the pause before the second attempt in a row; the first is made
	// at once. It doubles up to ten seconds. Zero means 400 ms.
	Wait time.Duration
}

func (o *ReattachOptions) withDefaults() (ReattachOptions, error) {
	r := orZero(o)
	if r.Limit < 0 {
		return r, invalid("Reattach.Limit", "%v is negative", r.Limit)
	}
	if r.Wait < 0 {
		return r, invalid("Reattach.Wait", "%v is negative", r.Wait)
	}
	r.Attempts, r.Limit, r.Wait = cmp.Or(r.Attempts, 20), cmp.Or(r.Limit, 5*time.Minute), cmp.Or(r.Wait, 400*time.Millisecond)
	return r, nil
}

// Client calls the API with one set of credentials. It is safe for concurrent
// use; make one and share it, so that connections are reused.
type Client struct {
	api      *api.Client
	creds    auth.Provider
	reattach ReattachOptions
	http     *http.Client
	base     *url.URL
	// secrets are the tokens that have been sent; no error or log record may
	// contain one.
	secrets *redact.Known
	// serverIDs is set if the service chooses the IDs of commands.
	serverIDs atomic.Bool
	// honoredIDs is set once the service has used an ID that we generated. doubtedIDs is set
	// if it probably used another ID instead.
	honoredIDs, doubtedIDs atomic.Bool
	// hooks is ClientOptions.Hooks.
	hooks func(Info) (onCreate, onResume Hook)
}

// NewClient returns a client. A nil opts takes everything from the
// environment. It makes no request: missing credentials are reported by the
// first call that needs them.
func NewClient(opts *ClientOptions) (*Client, error) {
	o := orZero(opts)
	u, fromEnv, err := apiAddress(o.BaseURL, o.AllowHTTP)
	if err != nil {
		return nil, err
	}
	mayHaveLogin := !fromEnv || oidc.AtVercel(u)
	if o.RetryWait < 0 {
		return nil, invalid("RetryWait", "%v is negative", o.RetryWait)
	}
	if strings.ContainsFunc(o.UserAgent, unicode.IsControl) {
		return nil, invalid("UserAgent", "%q has a control character", o.UserAgent)
	}
	retry := api.Retry{Max: max(cmp.Or(o.MaxRetries, 2), 0), Wait: cmp.Or(o.RetryWait, 400*time.Millisecond)}
	rateWait := cmp.Or(o.MaxRateLimitWait, 2*time.Minute)
	reattach, err := o.Reattach.withDefaults()
	if err != nil {
		return nil, err
	}
	hc := o.HTTPClient
	if hc == nil {
		hc = &http.Client{Transport: api.DefaultTransport()}
	} else if hc.Timeout != 0 {
		return nil, invalid("HTTPClient", "its Timeout of %v would cut streams; limit calls by their contexts", hc.Timeout)
	}
	creds := o.Credentials
	if creds == nil {
		creds = auth.Default(&auth.Options{HTTPClient: o.HTTPClient, Logger: o.Logger, BaseURL: u.String()})
	}
	c := &Client{creds: creds, reattach: reattach, http: hc, base: u, secrets: &redact.Known{}, hooks: o.Hooks}
	c.serverIDs.Store(o.ServerCommandIDs)
	c.api = api.New(api.Config{
		BaseURL: u, HTTPClient: hc, UserAgent: api.UserAgent(o.UserAgent, Version()), Retry: retry, Observer: observers(&o), Logger: o.Logger, Secrets: c.secrets,
		Auth: func(ctx context.Context) (api.Auth, error) {
			cr, err := creds.Credentials(ctx)
			if err == nil {
				err = cr.Validate()
			}
			if err == nil && cr.FromLogin() && !mayHaveLogin {
				return api.Auth{}, fmt.Errorf("sandbox: the login of the Vercel CLI is not sent to %s, which %s names: set VERCEL_TOKEN, VERCEL_TEAM_ID and VERCEL_PROJECT_ID, or ClientOptions.BaseURL", u.Host, oidc.BaseURLVariable)
			}
			whose := "the credentials of ClientOptions"
			switch {
			case cr.FromLogin():
				whose = "the login of the Vercel CLI"
			case o.Credentials == nil:
				whose = "the credentials of the environment"
			}
			as := fmt.Sprintf("%s, for team %s and project %s", whose, cr.TeamID, cr.ProjectID)
			return api.Auth{Token: cr.Token, TeamID: cr.TeamID, As: as}, err
		},
		Refresh:          refresher(creds, mayHaveLogin),
		MaxRateLimitWait: rateWait,
	})
	return c, nil
}

// refresher adapts a provider that can replace a rejected token.
func refresher(creds auth.Provider, mayHaveLogin bool) func(context.Context, api.Auth) (api.Auth, bool) {
	r, ok := creds.(auth.Refresher)
	if !ok {
		return nil
	}
	return func(ctx context.Context, stale api.Auth) (api.Auth, bool) {
		// A token that has not expired was rejected for its permissions, and a new one
		// would be rejected too.
		if expiry, ok := oidc.Expiry(stale.Token); !ok || !oidc.Expired(expiry, time.Now()) {
			return api.Auth{}, false
		}
		cr, err := r.Refresh(ctx, auth.Credentials{Token: stale.Token, TeamID: stale.TeamID})
		if err != nil || cr.Validate() != nil || cr.Token == stale.Token || cr.FromLogin() && !mayHaveLogin {
			return api.Auth{}, false
		}
		return api.Auth{Token: cr.Token, TeamID: cr.TeamID, As: stale.As}, true
	}
}

var defaultClient = sync.OnceValues(func() (*Client, error) { return NewClient(nil) })

// DefaultClient returns the client used by the package-level functions. It is
// made once, from the environment at the time of the first use.
func DefaultClient() (*Client, error) { return defaultClient() }

type clientKey struct{}

// ContextWithClient returns a context with which the package-level functions
// ([Create], [Get], [List] and so on) use c instead of [DefaultClient]. Code
// that uses those functions can thus be tested against an emulator in the same
// process:
//
//	ctx := sandbox.ContextWithClient(t.Context(), srv.Client())
//
// Methods of a Client, and of the handles it returns, are not affected.
func ContextWithClient(ctx context.Context, c *Client) context.Context {
	return context.WithValue(ctx, clientKey{}, c)
}

// clientOf returns the client that ctx carries, or else the default one.
func clientOf(ctx context.Context) (*Client, error) {
	if ctx == nil {
		return nil, errNilContext
	}
	if c, ok := ctx.Value(clientKey{}).(*Client); ok && c != nil {
		return c, nil
	}
	return DefaultClient()
}

// Age returns how long ago at was. at is a time that the service reported, like
// [Info.UpdatedAt]. Age measures by the service's clock and by this machine's, and returns
// the shorter time. Use it to decide what is old enough to delete: a wrong Date in one
// response, or a wrong clock of this machine, then deletes nothing. Age makes no request.
func (c *Client) Age(at time.Time) time.Duration {
	age := time.Since(at)
	if c != nil && c.api != nil {
		age = min(age, c.api.Now().Sub(at))
	}
	return age
}

// CloseIdleConnections closes connections that are not in use.
func (c *Client) CloseIdleConnections() {
	if c != nil && c.http != nil {
		c.http.CloseIdleConnections()
	}
}

// projectID asks the provider for the project that calls are made for.
func (c *Client) projectID(ctx context.Context) (string, error) {
	if _, err := enter(ctx, c); err != nil {
		return "", err
	}
	cr, err := c.creds.Credentials(ctx)
	return cr.ProjectID, err
}

func projectQuery(project string) url.Values { return url.Values{"projectId": {project}} }

var errZeroClient = fmt.Errorf("sandbox: %w: the Client was not made by NewClient", ErrInvalid)

var errNilContext = invalid("ctx", "is nil; context.Background is the one that never ends")

func (c *Client) client() (*Client, error) {
	if c == nil || c.api == nil {
		return nil, errZeroClient
	}
	return c, nil
}

// Each call with a context begins with enter, before it checks its arguments. enter
// refuses a nil or zero handle or client, the handle of a deleted sandbox, and a nil
// context. It returns the client that makes the call's requests.
func enter(ctx context.Context, on interface{ client() (*Client, error) }) (*Client, error) {
	c, err := on.client()
	if err == nil {
		_, err = c.client() // a handle can be bound to a zero Client
	}
	if err == nil && ctx == nil {
		err = errNilContext
	}
	return c, err
}

// do performs an operation and decodes its response.
func (c *Client) do(ctx context.Context, req *api.Request, out any) error {
	if err := checkRoute(req); err != nil {
		return err
	}
	if err := c.api.Do(ctx, req, out); err != nil {
		return publicError(err)
	}
	return nil
}

// stream performs an operation whose response body is read and closed by the
// caller.
func (c *Client) stream(ctx context.Context, req *api.Request) (*http.Response, error) {
	if err := checkRoute(req); err != nil {
		return nil, err
	}
	resp, err := c.api.Stream(ctx, req)
	if err != nil {
		return nil, publicError(err)
	}
	return resp, nil
}

// apiAddress returns the address of the API, and whether it comes from the environment.
func apiAddress(base string, allowHTTP bool) (u *url.URL, fromEnv bool, err error) {
	if base == "" {
		base = os.Getenv(oidc.BaseURLVariable)
		fromEnv = base != ""
	}
	base = cmp.Or(base, oidc.DefaultBaseURL)
	if u, err = oidc.Address(base, allowHTTP); err != nil {
		return nil, false, invalid("BaseURL", "%v", err)
	}
	return u, fromEnv, nil
}

// Create creates a sandbox with the default client; see [Client.Create].
func Create(ctx context.Context, opts *CreateOptions) (*Sandbox, error) {
	return with(ctx, func(c *Client) (*Sandbox, error) { return c.Create(ctx, opts) })
}

// Get returns a sandbox by name, using the default client; see [Client.Get].
func Get(ctx context.Context, name string, opts *GetOptions) (*Sandbox, error) {
	return with(ctx, func(c *Client) (*Sandbox, error) { return c.Get(ctx, name, opts) })
}

// GetOrCreate returns the sandbox with the given name, creating it if
// necessary, using the default client; see [Client.GetOrCreate].
func GetOrCreate(ctx context.Context, name string, opts *CreateOptions) (*Sandbox, error) {
	return with(ctx, func(c *Client) (*Sandbox, error) { return c.GetOrCreate(ctx, name, opts) })
}

// Fork creates a sandbox from another with the default client; see
// [Client.Fork].
func Fork(ctx context.Context, source string, opts *ForkOptions) (*Sandbox, error) {
	return with(ctx, func(c *Client) (*Sandbox, error) { return c.Fork(ctx, source, opts) })
}

// List iterates over the project's sandboxes with the default client; see
// [Client.List].
func List(ctx context.Context, opts *ListOptions) iter.Seq2[Info, error] {
	return func(yield func(Info, error) bool) {
		c, err := clientOf(ctx)
		if err != nil {
			yield(Info{}, err)
			return
		}
		c.List(ctx, opts)(yield)
	}
}

func with[T any](ctx context.Context, fn func(*Client) (T, error)) (T, error) {
	c, err := clientOf(ctx)
	if err != nil {
		var zero T
		return zero, err
	}
	return fn(c)
}

// Handle is a [*Sandbox], [*Session], [*Command], [*CommandResult], [*Snapshot]
// or [*Drive].
type Handle interface{ bind(*Client) }

// Bind makes handles use c. Without it, handles that came from JSON use [DefaultClient].
// It makes no request, and ignores nil handles.
func (c *Client) Bind(handles ...Handle) {
	for _, h := range handles {
		if v := reflect.ValueOf(h); v.IsValid() && !v.IsNil() {
			h.bind(c)
		}
	}
}

// bound is the part that all handles share.
type bound struct {
	mu sync.Mutex
	c  *Client // nil until needed, for handles from JSON
}

func (b *bound) bind(c *Client) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.c = c
}

// clientLocked returns the handle's client, or the default one.
func (b *bound) clientLocked() (*Client, error) {
	if b.c == nil {
		c, err := DefaultClient()
		if err != nil {
			return nil, err
		}
		b.c = c
	}
	return b.c, nil
}
