package sandbox

import (
	"context"
	"fmt"
	"iter"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-vercel/sandbox/auth"
	"github.com/go-vercel/sandbox/internal/api"
	"github.com/go-vercel/sandbox/internal/oidc"
	"github.com/go-vercel/sandbox/internal/redact"
)

// Version returns the version of this SDK, as sent in the User-Agent header: that
// of the module in the build, or of the next release where the build has none, as
// in a clone.
func Version() string { return version() }

const (
	module      = "github.com/go-vercel/sandbox"
	nextRelease = "0.2.0"
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

// DefaultBaseURL is where the API is when neither [ClientOptions] nor the
// environment variable VERCEL_SANDBOX_BASE_URL says otherwise.
const DefaultBaseURL = "https://vercel.com/api"

// ClientOptions configures a [Client]. The zero value takes everything from
// the environment.
type ClientOptions struct {
	// Credentials is asked before every request. Nil means [auth.Default], with
	// HTTPClient and Logger.
	Credentials auth.Provider
	// BaseURL is the address of the API. Empty means the environment variable
	// VERCEL_SANDBOX_BASE_URL, and without one [DefaultBaseURL]. It is an https
	// address, or an http one of this machine: 127.0.0.1, [::1] or localhost.
	//
	// The login of the Vercel CLI is not sent to an address from the environment
	// that is not one of vercel.com.
	BaseURL string
	// AllowHTTP lets BaseURL be an http address of any host. Whoever sees the
	// requests on their way has the credentials.
	AllowHTTP bool
	// HTTPClient sends the requests. Nil means a client whose connections are
	// reused by any number of goroutines. A Timeout in it would cut streams, so
	// it must be zero; limit calls by their contexts. It opens terminals as well,
	// whose token is in the address: a transport that records addresses records
	// it.
	HTTPClient *http.Client
	// Logger is given one record for each request, at debug level, or at
	// warning level when it failed or was retried. No secret is ever logged.
	// Nil logs nothing.
	Logger *slog.Logger
	// Retry limits how often failed requests are retried. Nil means twice, after
	// 400 and 800 ms.
	Retry *RetryOptions
	// Reattach limits how broken output streams are repaired. Nil means the
	// defaults of [ReattachOptions].
	Reattach *ReattachOptions
	// ServerCommandIDs leaves the choice of a command's ID to the service. By
	// default the client makes one up and sends it along, so that a command whose
	// start got no answer can be looked for. A service that ignores or refuses
	// IDs is noticed at the first command; the client then goes on as if this
	// was set, and says so to Logger.
	ServerCommandIDs bool
	// UserAgent is put before the SDK's own in the User-Agent header. Like the
	// official tools, the SDK also names the coding agent that the program runs
	// in, if any; a non-empty VERCEL_TELEMETRY_DISABLED or
	// VERCEL_SANDBOX_TELEMETRY_DISABLED in the environment keeps that out. The
	// API refuses requests without the header with status 403.
	UserAgent string
	// OnRateLimit is told of the budget that each answer says it was counted
	// against, with the operation in words, "get session" for example. It is
	// called by the goroutines that make the requests, several at once, and
	// must not block. The Logger is told as well. Nil tells nobody else.
	OnRateLimit func(operation string, limit RateLimit)
}

// rateLimitHook adapts a hook to the transport.
func rateLimitHook(hook func(string, RateLimit)) func(*api.Op, api.RateLimit) {
	if hook == nil {
		return nil
	}
	return func(op *api.Op, r api.RateLimit) { hook(op.Name, RateLimit(r)) }
}

// RetryOptions limits how failed requests are retried. Whether they are retried
// at all depends on the operation; see the package documentation.
type RetryOptions struct {
	// Max is the maximum number of retries of a request. Zero means two; a
	// negative number means none.
	Max int
	// Wait is the pause before the first retry, 400 ms when zero. It
	// doubles each time and is then stretched by a random factor of up to two.
	Wait time.Duration
}

// Client talks to the API on behalf of one set of credentials. It is safe for
// concurrent use; make one and share it, so that connections are reused.
type Client struct {
	api      *api.Client
	creds    auth.Provider
	reattach ReattachOptions
	http     *http.Client
	base     *url.URL
	log      *slog.Logger
	// secrets are the tokens that have been sent, which no error or log record
	// may show.
	secrets *redact.Known
	// serverIDs: commands get their IDs from the service.
	serverIDs atomic.Bool
	// hooksDue holds the IDs of sessions whose OnResume failed in Get, which
	// returns no handle then.
	hooksDue sync.Map
}

// NewClient returns a client. A nil opts takes everything from the
// environment. It makes no request: missing credentials are reported by the
// first call that needs them.
func NewClient(opts *ClientOptions) (*Client, error) {
	var o ClientOptions
	if opts != nil {
		o = *opts
	}
	u, fromEnv, err := o.baseURL()
	if err != nil {
		return nil, err
	}
	mayHaveLogin := !fromEnv || u.Hostname() == "vercel.com" || strings.HasSuffix(u.Hostname(), ".vercel.com")
	retry := api.Retry{Max: 2, Wait: 400 * time.Millisecond}
	if o.Retry != nil {
		if o.Retry.Wait < 0 {
			return nil, invalid("Retry.Wait", "%v is negative", o.Retry.Wait)
		}
		if o.Retry.Max != 0 {
			retry.Max = max(o.Retry.Max, 0)
		}
		if o.Retry.Wait > 0 {
			retry.Wait = o.Retry.Wait
		}
	}
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
		creds = auth.Default(&auth.Options{HTTPClient: o.HTTPClient, Logger: o.Logger})
	}
	c := &Client{creds: creds, reattach: reattach, http: hc, base: u, log: o.Logger, secrets: &redact.Known{}}
	c.serverIDs.Store(o.ServerCommandIDs)
	c.api = api.New(api.Config{
		BaseURL: u, HTTPClient: hc, UserAgent: userAgent(o.UserAgent), Retry: retry, Logger: o.Logger, Secrets: c.secrets,
		Auth: func(ctx context.Context) (api.Auth, error) {
			cr, err := creds.Credentials(ctx)
			if err == nil {
				err = cr.Validate()
			}
			if err == nil && cr.FromLogin() && !mayHaveLogin {
				return api.Auth{}, fmt.Errorf("sandbox: the login of the Vercel CLI is not sent to %s, which %s names: set VERCEL_TOKEN, VERCEL_TEAM_ID and VERCEL_PROJECT_ID, or ClientOptions.BaseURL", u.Host, baseURLVariable)
			}
			return api.Auth{Token: cr.Token, TeamID: cr.TeamID}, err
		},
		Refresh:     refresher(creds, mayHaveLogin),
		OnRateLimit: rateLimitHook(o.OnRateLimit),
	})
	return c, nil
}

// baseURLVariable names the API's address where ClientOptions doesn't.
const baseURLVariable = "VERCEL_SANDBOX_BASE_URL"

// baseURL is the API's address, and whether it is from the environment.
func (o *ClientOptions) baseURL() (u *url.URL, fromEnv bool, err error) {
	base := o.BaseURL
	if base == "" {
		base = os.Getenv(baseURLVariable)
		fromEnv = base != ""
	}
	if base == "" {
		base = DefaultBaseURL
	}
	u, err = url.Parse(strings.TrimRight(base, "/"))
	switch {
	case err != nil:
		return nil, false, invalid("BaseURL", "it is not an http or https address")
	case u.Scheme != "https" && u.Scheme != "http" || u.Host == "":
		return nil, false, invalid("BaseURL", "%q is not an http or https address", redact.URL(base))
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return nil, false, invalid("BaseURL", "%q has more than a host and a path", redact.URL(base))
	case u.Scheme == "http" && !o.AllowHTTP && !onThisMachine(u.Hostname()):
		return nil, false, invalid("BaseURL", "%q is not encrypted, and would be sent credentials in the clear; use https, or set AllowHTTP", redact.URL(base))
	}
	return u, fromEnv, nil
}

// onThisMachine reports whether a host is the machine itself, whatever name
// servers say.
func onThisMachine(host string) bool {
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.Unmap().IsLoopback() || host == "localhost"
}

// refresher adapts a provider that can replace a refused token.
func refresher(creds auth.Provider, mayHaveLogin bool) func(context.Context, api.Auth) (api.Auth, bool) {
	r, ok := creds.(auth.Refresher)
	if !ok {
		return nil
	}
	return func(ctx context.Context, stale api.Auth) (api.Auth, bool) {
		// A token that is still good was refused for what it may not do, and so
		// would be its successor.
		if expiry, ok := oidc.Expiry(stale.Token); !ok || !oidc.Expired(expiry, time.Now()) {
			return api.Auth{}, false
		}
		cr, err := r.Refresh(ctx, auth.Credentials{Token: stale.Token, TeamID: stale.TeamID})
		if err != nil || cr.Validate() != nil || cr.Token == stale.Token || cr.FromLogin() && !mayHaveLogin {
			return api.Auth{}, false
		}
		return api.Auth{Token: cr.Token, TeamID: cr.TeamID}, true
	}
}

var defaultClient = sync.OnceValues(func() (*Client, error) { return NewClient(nil) })

// DefaultClient returns the client behind the package-level functions. It is
// made once, from the environment as it is at the first use.
func DefaultClient() (*Client, error) { return defaultClient() }

type clientKey struct{}

// ContextWithClient returns a context whose package-level functions ([Create],
// [Get], [List] and so on) use c instead of [DefaultClient], so that code that
// is written with them can be tested against an emulator in the same process:
//
//	ctx := sandbox.ContextWithClient(t.Context(), srv.Client())
//
// Methods of a Client and of the handles that it made are not affected.
func ContextWithClient(ctx context.Context, c *Client) context.Context {
	return context.WithValue(ctx, clientKey{}, c)
}

// clientOf returns the client that ctx carries, or else the default one.
func clientOf(ctx context.Context) (*Client, error) {
	if c, ok := ctx.Value(clientKey{}).(*Client); ok && c != nil {
		return c, nil
	}
	return DefaultClient()
}

// CloseIdleConnections closes connections that no request uses at the moment.
func (c *Client) CloseIdleConnections() { c.http.CloseIdleConnections() }

// projectID asks the provider for the project that calls are made for.
func (c *Client) projectID(ctx context.Context) (string, error) {
	if c == nil || c.creds == nil {
		return "", errZeroClient
	}
	cr, err := c.creds.Credentials(ctx)
	return cr.ProjectID, err
}

var errZeroClient = fmt.Errorf("sandbox: %w: the Client was not made by NewClient", ErrInvalid)

// do performs an operation and decodes its answer.
func (c *Client) do(ctx context.Context, req *api.Request, out any) error {
	if c == nil || c.api == nil {
		return errZeroClient
	}
	if err := checkRoute(req); err != nil {
		return err
	}
	if err := c.api.Do(ctx, req, out); err != nil {
		return publicError(err)
	}
	return nil
}

// stream performs an operation whose answer is read by the caller, who closes
// its body.
func (c *Client) stream(ctx context.Context, req *api.Request) (*http.Response, error) {
	if c == nil || c.api == nil {
		return nil, errZeroClient
	}
	if err := checkRoute(req); err != nil {
		return nil, err
	}
	resp, err := c.api.Stream(ctx, req)
	if err != nil {
		return nil, publicError(err)
	}
	return resp, nil
}

// Create makes a sandbox with the default client; see [Client.Create].
func Create(ctx context.Context, opts *CreateOptions) (*Sandbox, error) {
	return with(ctx, func(c *Client) (*Sandbox, error) { return c.Create(ctx, opts) })
}

// Get looks a sandbox up with the default client; see [Client.Get].
func Get(ctx context.Context, name string, opts *GetOptions) (*Sandbox, error) {
	return with(ctx, func(c *Client) (*Sandbox, error) { return c.Get(ctx, name, opts) })
}

// GetOrCreate returns the sandbox of a name, made if need be, with the default
// client; see [Client.GetOrCreate].
func GetOrCreate(ctx context.Context, name string, opts *CreateOptions) (*Sandbox, error) {
	return with(ctx, func(c *Client) (*Sandbox, error) { return c.GetOrCreate(ctx, name, opts) })
}

// Fork makes a sandbox from another with the default client; see [Client.Fork].
func Fork(ctx context.Context, source string, opts *ForkOptions) (*Sandbox, error) {
	return with(ctx, func(c *Client) (*Sandbox, error) { return c.Fork(ctx, source, opts) })
}

// List iterates over the project's sandboxes with the default client; see
// [Client.List].
func List(ctx context.Context, opts *ListOptions) iter.Seq2[Info, error] {
	return listWith(ctx, func(c *Client) iter.Seq2[Info, error] { return c.List(ctx, opts) })
}

// ListPage returns one page of [List] with the default client; see
// [Client.ListPage].
func ListPage(ctx context.Context, opts *ListOptions) (*Page[Info], error) {
	return with(ctx, func(c *Client) (*Page[Info], error) { return c.ListPage(ctx, opts) })
}

// Delete deletes a sandbox by its name with the default client; see
// [Client.Delete].
func Delete(ctx context.Context, name string, opts *DeleteOptions) error {
	c, err := clientOf(ctx)
	if err != nil {
		return err
	}
	return c.Delete(ctx, name, opts)
}

// GetOrCreateDrive returns the drive of a name, made if need be, with the default
// client; see [Client.GetOrCreateDrive].
func GetOrCreateDrive(ctx context.Context, name string, opts *DriveOptions) (*Drive, error) {
	return with(ctx, func(c *Client) (*Drive, error) { return c.GetOrCreateDrive(ctx, name, opts) })
}

// GetDrive looks a drive up with the default client; see [Client.GetDrive].
func GetDrive(ctx context.Context, nameOrID string) (*Drive, error) {
	return with(ctx, func(c *Client) (*Drive, error) { return c.GetDrive(ctx, nameOrID) })
}

// ForkDrive makes a drive from another with the default client; see
// [Client.ForkDrive].
func ForkDrive(ctx context.Context, source, name string) (*Drive, error) {
	return with(ctx, func(c *Client) (*Drive, error) { return c.ForkDrive(ctx, source, name) })
}

// DeleteDrive deletes a drive by its name with the default client; see
// [Client.DeleteDrive].
func DeleteDrive(ctx context.Context, name string) error {
	c, err := clientOf(ctx)
	if err != nil {
		return err
	}
	return c.DeleteDrive(ctx, name)
}

// ListDrives iterates over the project's drives with the default client; see
// [Client.ListDrives].
func ListDrives(ctx context.Context, opts *ListDrivesOptions) iter.Seq2[DriveInfo, error] {
	return listWith(ctx, func(c *Client) iter.Seq2[DriveInfo, error] { return c.ListDrives(ctx, opts) })
}

// ListDrivesPage returns one page of [ListDrives] with the default client; see
// [Client.ListDrivesPage].
func ListDrivesPage(ctx context.Context, opts *ListDrivesOptions) (*Page[DriveInfo], error) {
	return with(ctx, func(c *Client) (*Page[DriveInfo], error) { return c.ListDrivesPage(ctx, opts) })
}

// GetSnapshot looks a snapshot up with the default client; see
// [Client.GetSnapshot].
func GetSnapshot(ctx context.Context, id string) (*Snapshot, error) {
	return with(ctx, func(c *Client) (*Snapshot, error) { return c.GetSnapshot(ctx, id) })
}

// ListSnapshots iterates over the project's snapshots with the default client;
// see [Client.ListSnapshots].
func ListSnapshots(ctx context.Context, opts *ListSnapshotsOptions) iter.Seq2[SnapshotInfo, error] {
	return listWith(ctx, func(c *Client) iter.Seq2[SnapshotInfo, error] { return c.ListSnapshots(ctx, opts) })
}

// SnapshotTree walks a snapshot's relatives with the default client; see
// [Client.SnapshotTree].
func SnapshotTree(ctx context.Context, id string, opts *SnapshotTreeOptions) iter.Seq2[SnapshotTreeNode, error] {
	return listWith(ctx, func(c *Client) iter.Seq2[SnapshotTreeNode, error] { return c.SnapshotTree(ctx, id, opts) })
}

func with[T any](ctx context.Context, fn func(*Client) (T, error)) (T, error) {
	c, err := clientOf(ctx)
	if err != nil {
		var zero T
		return zero, err
	}
	return fn(c)
}

func listWith[T any](ctx context.Context, fn func(*Client) iter.Seq2[T, error]) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		c, err := clientOf(ctx)
		if err != nil {
			var zero T
			yield(zero, err)
			return
		}
		fn(c)(yield)
	}
}
