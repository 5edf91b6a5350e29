package canned_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/auth"
	"github.com/go-vercel/sandbox/internal/test/canned"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// noRequests is an API that fails the test if it gets a request.
func noRequests(t *testing.T) canned.API {
	return func(req *http.Request) (*http.Response, error) {
		t.Errorf("%s %s", req.Method, req.URL.Path)
		return canned.JSON(http.StatusTeapot, `{}`), nil
	}
}

// TestInvalidArguments: the client refuses arguments that no server could accept. It sends no
// request, and the error names the argument.
func TestInvalidArguments(t *testing.T) {
	t.Parallel()
	api := noRequests(t)
	sb, client, ctx := api.Sandbox(t), api.Client(t), t.Context()
	create := func(o sandbox.CreateOptions) error { _, err := client.Create(ctx, &o); return err }
	get := func(name string) error { _, err := client.Get(ctx, name, nil); return err }
	run := func(name string, args []string, o sandbox.CommandOptions) error {
		_, err := sb.RunCommand(ctx, name, args, &o)
		return err
	}
	for _, tc := range []struct {
		name, mentions string
		err            error
	}{
		{"list: status by name", "Status", func() error {
			_, err := client.ListPage(ctx, &sandbox.ListOptions{Status: sandbox.StatusRunning, SortBy: sandbox.SortByName})
			return err
		}()},
		{"list: order", "SortOrder", func() error {
			_, err := client.ListSnapshotsPage(ctx, &sandbox.ListSnapshotsOptions{SortOrder: "ascending"})
			return err
		}()},
		{"list: status and prefix", "Status", func() error {
			_, err := client.ListPage(ctx, &sandbox.ListOptions{Status: sandbox.StatusRunning, NamePrefix: "a"})
			return err
		}()},
		{"get: empty name", "name", get("")},
		{"get: ..", `".."`, get("..")},
		{"get: .", `"."`, get(".")},
		{"get: sessions", `"sessions"`, get("sessions")},
		{"get: snapshots", `"snapshots"`, get("snapshots")},
		{"get: NUL", "NUL", get("a\x00b")},
		{"get: not UTF-8", "UTF-8", get("a\xffb")},
		{"delete: ..", `".."`, client.Delete(ctx, "..", nil)},
		{"fork: sessions", `"sessions"`, func() error { _, err := client.Fork(ctx, "sessions", nil); return err }()},
		{"create: name", `"snapshots"`, create(sandbox.CreateOptions{Name: "snapshots"})},
		{"create: port 0", "port 0", create(sandbox.CreateOptions{Ports: []int{8080, 0}})},
		{"create: port 70000", "port 70000", create(sandbox.CreateOptions{Ports: []int{70000}})},
		{"create: negative timeout", "Timeout", create(sandbox.CreateOptions{Timeout: -time.Second})},
		{"create: microseconds", "millisecond", create(sandbox.CreateOptions{Timeout: time.Microsecond})},
		{"create: negative expiration", "SnapshotExpiration", create(sandbox.CreateOptions{SnapshotExpiration: -time.Hour})},
		{"create: runtime and image", "Runtime", create(sandbox.CreateOptions{Runtime: "node24", Image: "debian"})},
		{"create: negative size", "VCPUs", create(sandbox.CreateOptions{VCPUs: -1})},
		{"create: keep none", "Count", create(sandbox.CreateOptions{KeepLastSnapshots: &sandbox.KeepLastSnapshots{}})},
		{"create: git without address", "Source.URL", create(sandbox.CreateOptions{Source: sandbox.GitSource{}})},
		{"create: half of a login", "Username", create(sandbox.CreateOptions{Source: sandbox.GitSource{URL: "https://a/b", Password: "x"}})},
		{"create: tarball without address", "Source.URL", create(sandbox.CreateOptions{Source: sandbox.TarballSource{}})},
		{"create: snapshot without ID", "SnapshotID", create(sandbox.CreateOptions{Source: sandbox.SnapshotSource{}})},
		{"create: variable", "Env", create(sandbox.CreateOptions{Env: map[string]string{"": "x"}})},
		{"getOrCreate: two names", "Name", func() error {
			_, err := client.GetOrCreate(ctx, "a", &sandbox.CreateOptions{Name: "b"})
			return err
		}()},
		{"update: port", "port -1", sb.Update(ctx, &sandbox.UpdateOptions{Ports: []int{-1}})},
		{"update: timeout", "Timeout", sb.Update(ctx, &sandbox.UpdateOptions{Timeout: -1})},
		{"extend: negative", "negative", sb.ExtendTimeout(ctx, -time.Minute)},
		{"snapshot: negative", "Expiration", func() error {
			_, err := sb.Snapshot(ctx, &sandbox.SnapshotOptions{Expiration: -time.Minute})
			return err
		}()},
		{"snapshot: short expiration", "below 24h", func() error {
			_, err := sb.Snapshot(ctx, &sandbox.SnapshotOptions{Expiration: time.Second})
			return err
		}()},
		{"run: no program", "name", run("", nil, sandbox.CommandOptions{})},
		{"run: NUL", "NUL", run("echo", []string{"a\x00"}, sandbox.CommandOptions{})},
		{"run: timeout", "Timeout", run("echo", nil, sandbox.CommandOptions{Timeout: -1})},
		{"run: cwd", "Cwd", run("echo", nil, sandbox.CommandOptions{Cwd: "\x00"})},
		{"getCommand: ..", `".."`, func() error { _, err := sb.GetCommand(ctx, ".."); return err }()},
		{"getSnapshot: tree", `"tree"`, func() error { _, err := client.GetSnapshot(ctx, "tree"); return err }()},
		{"create: name of a route", `"drives"`, create(sandbox.CreateOptions{Name: "drives"})},
		{"create: name with a space", `"a b"`, create(sandbox.CreateOptions{Name: "a b"})},
		{"create: long name", "at most 128", create(sandbox.CreateOptions{Name: strings.Repeat("a", 129)})},
		{"create: nil source", "nil pointer", create(sandbox.CreateOptions{Source: (*sandbox.GitSource)(nil)})},
		{"copyFS: nothing", "fsys", sb.FS().CopyFS(ctx, "x", nil, nil)},
		{"walkDir: no function", "fn", sb.FS().WalkDir(ctx, "/tmp", nil)},
		{"create: low port", "1024 to 65535", create(sandbox.CreateOptions{Ports: []int{80}})},
		{"create: 16 ports", "at most 15", create(sandbox.CreateOptions{Ports: make([]int, 16)})},
		{"create: short timeout", "1s to 24h", create(sandbox.CreateOptions{Timeout: 999 * time.Millisecond})},
		{"create: long timeout", "1s to 24h", create(sandbox.CreateOptions{Timeout: 25 * time.Hour})},
		{"create: odd size", "even", create(sandbox.CreateOptions{VCPUs: 3})},
		{"create: large environment", "at most 4096", create(sandbox.CreateOptions{Env: map[string]string{"A": strings.Repeat("x", 4096)}})},
		{"create: 6 tags", "at most 5", create(sandbox.CreateOptions{Tags: map[string]string{"a": "", "b": "", "c": "", "d": "", "e": "", "f": ""}})},
		{"create: long key", "at most 128", create(sandbox.CreateOptions{Tags: map[string]string{strings.Repeat("k", 129): ""}})},
		{"create: long value", "at most 256", create(sandbox.CreateOptions{Tags: map[string]string{"k": strings.Repeat("v", 257)}})},
		{"create: short expiration", "below 24h", create(sandbox.CreateOptions{SnapshotExpiration: time.Hour})},
		{"create: keep 11", "1 to 10", create(sandbox.CreateOptions{KeepLastSnapshots: &sandbox.KeepLastSnapshots{Count: 11}})},
		{"create: 5 mounts", "at most 4", create(sandbox.CreateOptions{Mounts: map[string]sandbox.Mount{"/a": {}, "/b": {}, "/c": {}, "/d": {}, "/e": {}}})},
		{"create: relative mount", "absolute", create(sandbox.CreateOptions{Mounts: map[string]sandbox.Mount{"a": {Drive: "d"}}})},
		{"create: mount of the root", "absolute", create(sandbox.CreateOptions{Mounts: map[string]sandbox.Mount{"/./": {Drive: "d"}}})},
		{"create: overlapping mounts", "overlap", create(sandbox.CreateOptions{Mounts: map[string]sandbox.Mount{"/a/": {Drive: "d"}, "/a/b": {Drive: "e"}}})},
		{"create: two writers", "read-write", create(sandbox.CreateOptions{Mounts: map[string]sandbox.Mount{"/a": {Drive: "d"}, "/b": {Drive: "d"}}})},
		{"create: mount mode", `"write"`, create(sandbox.CreateOptions{Mounts: map[string]sandbox.Mount{"/a": {Drive: "d", Mode: "write"}}})},
		{"create: mount of no drive", "Drive", create(sandbox.CreateOptions{Mounts: map[string]sandbox.Mount{"/a": {}}})},
		{"fork: overlapping mounts", "overlap", func() error {
			_, err := client.Fork(ctx, "a", &sandbox.ForkOptions{Mounts: map[string]sandbox.Mount{"/a": {Drive: "d"}, "/a/b": {Drive: "e"}}})
			return err
		}()},
		{"update: relative mount", "absolute", sb.Update(ctx, &sandbox.UpdateOptions{Mounts: map[string]sandbox.Mount{"a": {Drive: "d"}}})},
		{"update: large environment", "at most 4096", sb.Update(ctx, &sandbox.UpdateOptions{Env: map[string]string{"A": strings.Repeat("x", 4096)}})},
		{"drive: ..", `".."`, func() error { _, err := client.GetOrCreateDrive(ctx, "..", nil); return err }()},
		{"drive: long name", "at most 64", func() error { _, err := client.GetDrive(ctx, strings.Repeat("d", 65)); return err }()},
		{"drive: negative size", "MaxSizeBytes", func() error {
			_, err := client.GetOrCreateDrive(ctx, "d", &sandbox.DriveOptions{MaxSizeBytes: -1})
			return err
		}()},
		{"drive: fork to nothing", "name", func() error { _, err := client.ForkDrive(ctx, "d", ""); return err }()},
		{"run: short timeout", "100ms to 5h", run("echo", nil, sandbox.CommandOptions{Timeout: time.Millisecond})},
		{"list: page size", "50", func() error { _, err := client.ListPage(ctx, &sandbox.ListOptions{Limit: 51}); return err }()},
		{"list: two tags", "one", func() error {
			_, err := client.ListPage(ctx, &sandbox.ListOptions{Tags: map[string]string{"a": "1", "b": "2"}})
			return err
		}()},
		{"list: limit", "Limit", func() error { _, err := client.ListPage(ctx, &sandbox.ListOptions{Limit: -1}); return err }()},
	} {
		t.Run(tc.name, func(t *testing.T) {
			require.ErrorIs(t, tc.err, sandbox.ErrInvalid)
			assert.Contains(t, tc.err.Error(), tc.mentions)
		})
	}
}

// TestClientOptions: NewClient refuses invalid options.
func TestClientOptions(t *testing.T) {
	for name, opts := range map[string]sandbox.ClientOptions{
		"scheme":   {BaseURL: "ftp://example.com"},
		"no host":  {BaseURL: "/api"},
		"query":    {BaseURL: "https://example.com/api?x=1"},
		"userinfo": {BaseURL: "https://u:secret@example.com/api"},
		"agent":    {UserAgent: "a\r\nX-Other: b"},
		"pause":    {RetryWait: -1},
		"repair":   {Reattach: &sandbox.ReattachOptions{Limit: -1}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := sandbox.NewClient(&opts)
			require.ErrorIs(t, err, sandbox.ErrInvalid)
			assert.NotContains(t, err.Error(), "secret")
		})
	}
}

func TestMaxRetries(t *testing.T) {
	t.Parallel()
	for limit, want := range map[int]int{0: 3, 1: 2, -1: 1} {
		requests := 0
		client, err := sandbox.NewClient(&sandbox.ClientOptions{
			MaxRetries: limit, RetryWait: time.Millisecond, BaseURL: "https://api.test",
			Credentials: auth.Static(auth.Credentials{Token: "t", TeamID: "t", ProjectID: "p"}),
			HTTPClient: &http.Client{Transport: canned.API(func(*http.Request) (*http.Response, error) {
				requests++
				return canned.JSON(http.StatusBadGateway, `{}`), nil
			})},
		})
		require.NoError(t, err)
		_, err = client.ListPage(t.Context(), nil)
		require.Error(t, err)
		assert.Equal(t, want, requests, "%d", limit)
	}
}

// TestCredentialsBeforeRequests: if credentials are missing or malformed, a call fails before
// its first request.
func TestCredentialsBeforeRequests(t *testing.T) {
	t.Parallel()
	for name, creds := range map[string]auth.Provider{
		"none":      auth.Default(&auth.Options{LookupEnv: func(string) (string, bool) { return "", false }}),
		"no team":   auth.Static(auth.Credentials{Token: "t", ProjectID: "p"}),
		"malformed": auth.Static(auth.Credentials{Token: "line\nbreak", TeamID: "t", ProjectID: "p"}),
	} {
		t.Run(name, func(t *testing.T) {
			client, err := sandbox.NewClient(&sandbox.ClientOptions{
				BaseURL: "https://api.test", Credentials: creds, HTTPClient: &http.Client{Transport: noRequests(t)},
			})
			require.NoError(t, err)
			_, err = client.Create(t.Context(), nil)
			require.Error(t, err)
			assert.NotContains(t, err.Error(), "line\nbreak")
		})
	}
}
