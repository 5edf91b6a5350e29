package sandbox_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/auth"
	"github.com/go-vercel/sandbox/sandboxtest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestInvalidArguments: what no server could accept is refused before any
// request, with an error that names the argument.
func TestInvalidArguments(t *testing.T) {
	srv, sb := start(t, nil)
	client := clientOf(t, srv, sandbox.ClientOptions{})
	ctx := t.Context()
	create := func(o sandbox.CreateOptions) error { _, err := client.Create(ctx, &o); return err }
	get := func(name string) error { _, err := client.Get(ctx, name, nil); return err }
	run := func(name string, args []string, o sandbox.CommandOptions) error {
		_, err := sb.RunCommand(ctx, name, args, &o)
		return err
	}
	before := len(srv.Requests())
	for _, tc := range []struct {
		name, mentions string
		err            error
	}{
		{"get: empty name", "name", get("")},
		{"get: ..", `".."`, get("..")},
		{"get: .", `"."`, get(".")},
		{"get: sessions", `"sessions"`, get("sessions")},
		{"get: snapshots", `"snapshots"`, get("snapshots")},
		{"get: NUL", "NUL", get("a\x00b")},
		{"get: not UTF-8", "UTF-8", get("a\xffb")},
		{"delete: ..", `".."`, client.Delete(ctx, "..")},
		{"fork: sessions", `"sessions"`, func() error { _, err := client.Fork(ctx, "sessions", nil); return err }()},
		{"create: name", `"snapshots"`, create(sandbox.CreateOptions{Name: "snapshots"})},
		{"create: port 0", "port 0", create(sandbox.CreateOptions{Ports: []int{80, 0}})},
		{"create: port 70000", "port 70000", create(sandbox.CreateOptions{Ports: []int{70000}})},
		{"create: negative timeout", "Timeout", create(sandbox.CreateOptions{Timeout: -time.Second})},
		{"create: microseconds", "millisecond", create(sandbox.CreateOptions{Timeout: time.Microsecond})},
		{"create: negative expiration", "SnapshotExpiration", create(sandbox.CreateOptions{SnapshotExpiration: new(-time.Hour)})},
		{"create: runtime and image", "Runtime", create(sandbox.CreateOptions{Runtime: "node24", Image: "debian"})},
		{"create: negative size", "VCPUs", create(sandbox.CreateOptions{VCPUs: -1})},
		{"create: keep none", "Count", create(sandbox.CreateOptions{KeepLastSnapshots: &sandbox.KeepLastSnapshots{}})},
		{"create: git without address", "Source.URL", create(sandbox.CreateOptions{Source: sandbox.GitSource{}})},
		{"create: half of a login", "Username", create(sandbox.CreateOptions{Source: sandbox.GitSource{URL: "https://a/b", Password: "x"}})},
		{"create: tarball without address", "Source.URL", create(sandbox.CreateOptions{Source: sandbox.TarballSource{}})},
		{"create: snapshot without ID", "SnapshotID", create(sandbox.CreateOptions{Source: sandbox.SnapshotSource{}})},
		{"create: private", "Private", create(sandbox.CreateOptions{Private: map[string]any{"region": "x"}})},
		{"create: variable", "Env", create(sandbox.CreateOptions{Env: map[string]string{"": "x"}})},
		{"getOrCreate: two names", "Name", func() error {
			_, err := client.GetOrCreate(ctx, "a", &sandbox.CreateOptions{Name: "b"})
			return err
		}()},
		{"update: port", "port -1", sb.Update(ctx, &sandbox.UpdateOptions{Ports: []int{-1}})},
		{"update: timeout", "Timeout", sb.Update(ctx, &sandbox.UpdateOptions{Timeout: -1})},
		{"extend: negative", "negative", sb.ExtendTimeout(ctx, -time.Minute)},
		{"snapshot: negative", "Expiration", func() error {
			_, err := sb.Snapshot(ctx, &sandbox.SnapshotOptions{Expiration: new(-time.Minute)})
			return err
		}()},
		{"run: no program", "name", run("", nil, sandbox.CommandOptions{})},
		{"run: NUL", "NUL", run("echo", []string{"a\x00"}, sandbox.CommandOptions{})},
		{"run: timeout", "Timeout", run("echo", nil, sandbox.CommandOptions{Timeout: -1})},
		{"run: cwd", "Cwd", run("echo", nil, sandbox.CommandOptions{Cwd: "\x00"})},
		{"getCommand: ..", `".."`, func() error { _, err := sb.GetCommand(ctx, ".."); return err }()},
		{"getSnapshot: tree", `"tree"`, func() error { _, err := client.GetSnapshot(ctx, "tree"); return err }()},
		{"list: limit", "Limit", func() error { _, err := client.ListPage(ctx, &sandbox.ListOptions{Limit: -1}); return err }()},
	} {
		t.Run(tc.name, func(t *testing.T) {
			require.ErrorIs(t, tc.err, sandbox.ErrInvalid)
			assert.Contains(t, tc.err.Error(), tc.mentions)
		})
	}
	assert.Len(t, srv.Requests(), before, "no request was made")
}

// TestServerRefuses: limits that the platform may move are its own to say, in
// its own words.
func TestServerRefuses(t *testing.T) {
	srv, sb := start(t, &sandbox.CreateOptions{Name: "taken"})
	client := clientOf(t, srv, sandbox.ClientOptions{})
	_, err := client.Create(t.Context(), &sandbox.CreateOptions{Name: sb.Name()})
	e := apiError(t, err)
	assert.Equal(t, 400, e.Status)
	assert.Equal(t, "bad_request", e.Code)
	assert.Contains(t, err.Error(), e.Message)
	assert.NotEmpty(t, e.Message)

	ports := make([]int, 40)
	for i := range ports {
		ports[i] = 3000 + i
	}
	_, err = client.Create(t.Context(), &sandbox.CreateOptions{Ports: ports})
	assert.Contains(t, strings.ToLower(apiError(t, err).Message), "port")

	_, err = client.Get(t.Context(), "missing", nil)
	require.ErrorIs(t, err, sandbox.ErrNotFound)
	assert.Equal(t, "missing", apiError(t, err).SandboxName)
}

func apiError(t *testing.T, err error) *sandbox.APIError {
	t.Helper()
	var e *sandbox.APIError
	require.ErrorAs(t, err, &e)
	return e
}

// TestClientOptions: a client that could not work is refused when it is made.
func TestClientOptions(t *testing.T) {
	for name, opts := range map[string]sandbox.ClientOptions{
		"scheme":   {BaseURL: "ftp://example.com"},
		"no host":  {BaseURL: "/api"},
		"query":    {BaseURL: "https://example.com/api?x=1"},
		"userinfo": {BaseURL: "https://u:secret@example.com/api"},
		"pause":    {Retry: &sandbox.RetryOptions{Wait: -1}},
		"repair":   {Reattach: &sandbox.ReattachOptions{Limit: -1}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := sandbox.NewClient(&opts)
			require.ErrorIs(t, err, sandbox.ErrInvalid)
			assert.NotContains(t, err.Error(), "secret")
		})
	}
}

func TestRetryOptions(t *testing.T) {
	srv := sandboxtest.New(t, nil)
	srv.Inject(sandboxtest.Fault{Operation: sandboxtest.ListSandboxes, Status: http.StatusBadGateway})
	for limit, want := range map[int]int{0: 3, 1: 2, -1: 1} {
		before := count(srv, sandboxtest.ListSandboxes)
		client := clientOf(t, srv, sandbox.ClientOptions{Retry: &sandbox.RetryOptions{Max: limit, Wait: time.Millisecond}})
		_, err := client.ListPage(t.Context(), nil)
		require.Error(t, err)
		assert.Equal(t, want, count(srv, sandboxtest.ListSandboxes)-before, "Max %d", limit)
	}
}

// TestCredentialsBeforeRequests: missing and malformed credentials are told
// before any request.
func TestCredentialsBeforeRequests(t *testing.T) {
	srv := sandboxtest.New(t, nil)
	for name, creds := range map[string]auth.Provider{
		"none":      auth.Default(&auth.Options{LookupEnv: func(string) (string, bool) { return "", false }}),
		"no team":   auth.Static(auth.Credentials{Token: "t", ProjectID: "p"}),
		"malformed": auth.Static(auth.Credentials{Token: "line\nbreak", TeamID: "t", ProjectID: "p"}),
	} {
		t.Run(name, func(t *testing.T) {
			client, err := sandbox.NewClient(&sandbox.ClientOptions{BaseURL: srv.URL, Credentials: creds})
			require.NoError(t, err)
			_, err = client.Create(t.Context(), nil)
			require.Error(t, err)
			assert.NotContains(t, err.Error(), "line\nbreak")
		})
	}
	assert.Empty(t, srv.Requests())
}
