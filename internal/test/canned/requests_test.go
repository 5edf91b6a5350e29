package canned_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/auth"
	"github.com/go-vercel/sandbox/internal/test/canned"
)

// recordingClient returns a client that gets the same response to each request, and the list
// of the bodies that it has sent.
func recordingClient(t *testing.T, response string) (*sandbox.Client, *[]string) {
	var sent []string
	return clientOfSandbox(t, func(req *http.Request) (*http.Response, error) {
		if req.Body != nil {
			body, err := io.ReadAll(req.Body)
			if err != nil {
				return nil, err
			}
			sent = append(sent, string(body))
		}
		return canned.JSON(200, response), nil
	}), &sent
}

func clientOfSandbox(t *testing.T, do func(*http.Request) (*http.Response, error)) *sandbox.Client {
	c, err := sandbox.NewClient(&sandbox.ClientOptions{HTTPClient: &http.Client{Transport: canned.RoundTripper(do)}, BaseURL: "https://api.test", Credentials: auth.Static(auth.Credentials{Token: "tok", TeamID: "team", ProjectID: "prj"})})
	require.NoError(t, err)
	return c
}

// TestNoPorts: a create without ports sends an empty list. An update sends an empty list only
// to close the open ports.
func TestNoPorts(t *testing.T) {
	t.Parallel()
	c, sent := recordingClient(t, canned.RunningSandbox)
	sb, err := c.Create(t.Context(), nil)
	require.NoError(t, err)
	require.NoError(t, sb.Update(t.Context(), &sandbox.UpdateOptions{Ports: []int{}}))
	require.NoError(t, sb.Update(t.Context(), &sandbox.UpdateOptions{Timeout: time.Minute}))
	require.NotEmpty(t, *sent)
	var ports []string
	for _, body := range *sent {
		var o map[string]json.RawMessage
		require.NoError(t, json.Unmarshal([]byte(body), &o))
		ports = append(ports, string(o["ports"]))
	}
	require.Greater(t, len(ports), 2)
	assert.Equal(t, []string{"[]", "[]"}, ports[:2])
	assert.NotContains(t, ports[2:], "[]")
}

// TestLaterPages: the requests for later pages have the parameters of the first, and the
// cursor. Each time of a listed object gets into the right field.
func TestLaterPages(t *testing.T) {
	t.Parallel()
	const times = `"createdAt":1000,"updatedAt":2000,"statusUpdatedAt":3000,"lastUsedAt":4000,"expiresAt":5000,"startedAt":6000,"requestedAt":7000,"stoppedAt":8000,"requestedStopAt":9000`
	at := func(s int64) time.Time { return time.Unix(s, 0).UTC() }
	for path, list := range map[string]func(c *sandbox.Client, sb *sandbox.Sandbox) ([]time.Time, []time.Time, error){
		"sandboxes": func(c *sandbox.Client, _ *sandbox.Sandbox) (got, want []time.Time, err error) {
			all, err := sandbox.Collect(c.List(t.Context(), &sandbox.ListOptions{Limit: 7, NamePrefix: "a", SortBy: sandbox.SortByName, SortOrder: sandbox.Descending}))
			for _, i := range all {
				got, want = append(got, i.CreatedAt, i.UpdatedAt, i.StatusUpdatedAt), append(want, at(1), at(2), at(3))
			}
			return got, want, err
		},
		"sessions": func(_ *sandbox.Client, sb *sandbox.Sandbox) (got, want []time.Time, err error) {
			all, err := sandbox.Collect(sb.ListSessions(t.Context(), &sandbox.PageOptions{Limit: 7, SortOrder: sandbox.Ascending}))
			for _, i := range all {
				got, want = append(got, i.CreatedAt, i.UpdatedAt, i.StartedAt, i.RequestedAt, i.StoppedAt, i.RequestedStopAt), append(want, at(1), at(2), at(6), at(7), at(8), at(9))
			}
			return got, want, err
		},
		"snapshots": func(c *sandbox.Client, _ *sandbox.Sandbox) (got, want []time.Time, err error) {
			all, err := sandbox.Collect(c.ListSnapshots(t.Context(), &sandbox.ListSnapshotsOptions{Limit: 7, SortOrder: sandbox.Ascending}))
			for _, i := range all {
				got, want = append(got, i.CreatedAt, i.UpdatedAt, i.LastUsedAt, i.ExpiresAt), append(want, at(1), at(2), at(4), at(5))
			}
			return got, want, err
		},
		"drives": func(c *sandbox.Client, _ *sandbox.Sandbox) (got, want []time.Time, err error) {
			all, err := sandbox.Collect(c.ListDrives(t.Context(), &sandbox.ListDrivesOptions{Limit: 7, SortOrder: sandbox.Ascending}))
			for _, i := range all {
				got, want = append(got, i.CreatedAt, i.UpdatedAt), append(want, at(1), at(2))
			}
			return got, want, err
		},
	} {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			var pages []url.Values
			c := clientOfSandbox(t, func(req *http.Request) (*http.Response, error) {
				query := req.URL.Query()
				if query.Get("limit") == "" && len(pages) == 0 {
					return canned.JSON(200, canned.RunningSandbox), nil
				}
				pages = append(pages, query)
				next := "null"
				if len(pages) < 3 {
					next = fmt.Sprintf(`"c%d"`, len(pages))
				}
				return canned.JSON(200, fmt.Sprintf(`{%q:[{"id":"x","name":"a","status":"stopped",%s}],"pagination":{"count":1,"next":%s}}`, path, times, next)), nil
			})
			sb, err := c.Get(t.Context(), "box", &sandbox.GetOptions{NoResume: true})
			require.NoError(t, err)
			got, want, err := list(c, sb)
			require.NoError(t, err)
			assert.Equal(t, want, got)
			require.Len(t, pages, 3)
			for i, page := range pages {
				assert.Equal(t, []string{"", "c1", "c2"}[i], page.Get("cursor"))
				page.Del("cursor")
				assert.Equal(t, "7", page.Get("limit"))
				assert.Equal(t, pages[0], page)
			}
		})
	}
}

// TestExtendedOnce: if the response to an extension of the timeout is lost, the client does
// not send it again, because it may have taken effect.
func TestExtendedOnce(t *testing.T) {
	t.Parallel()
	for name, lost := range map[string]func() (*http.Response, error){
		"no response":       func() (*http.Response, error) { return nil, io.ErrUnexpectedEOF },
		"a page of a proxy": func() (*http.Response, error) { return canned.Response(502, "text/html", http.NoBody), nil },
	} {
		sent := 0
		sb := canned.API(func(*http.Request) (*http.Response, error) { sent++; return lost() }).Sandbox(t)
		err := sb.ExtendTimeout(t.Context(), time.Minute)
		require.ErrorIs(t, err, sandbox.ErrOutcomeUnknown, name)
		assert.Equal(t, 1, sent, name)
	}
}

// TestLinksOfAUser: an upload changes the owner of a link, and not the owner of its target.
func TestLinksOfAUser(t *testing.T) {
	t.Parallel()
	var args []string
	sb := canned.API(func(req *http.Request) (*http.Response, error) {
		if !strings.HasSuffix(req.URL.Path, "/cmd") {
			return canned.JSON(200, `{}`), nil
		}
		var body struct{ Args []string }
		if err := json.NewDecoder(req.Body).Decode(&body); err != nil {
			return nil, err
		}
		args = body.Args
		return canned.JSON(400, `{"error":{"code":"bad_request","message":"not now"}}`), nil
	}).Sandbox(t)
	alice, err := sb.AsUser("alice")
	require.NoError(t, err)
	dir := t.TempDir()
	require.NoError(t, os.Symlink("/etc/hostname", filepath.Join(dir, "link")))
	require.Error(t, alice.FS().UploadDir(t.Context(), dir, "up", &sandbox.UploadOptions{OutsideLinks: true}))
	at := slices.Index(args, "/home/alice/up/link")
	require.GreaterOrEqual(t, at, 3, "%q", args)
	assert.Equal(t, []string{"chown", "-h", "alice"}, args[at-3:at])
}

// TestFieldsThatAreNotRecorded checks fields of requests that the recordings of the official SDK do not
// show: those that the official SDK does not send, and those of a start.
func TestFieldsThatAreNotRecorded(t *testing.T) {
	t.Parallel()
	env, extra := sandbox.Env{"A": "b"}, map[string]any{"__x": "y"}
	for name, tt := range map[string]struct {
		want string
		call func(ctx context.Context, c *sandbox.Client, sb *sandbox.Sandbox) error
	}{
		"create": {`{"architecture":"arm64","credentials":{"later":1,"npm":true},"__x":"y"}`, func(ctx context.Context, c *sandbox.Client, _ *sandbox.Sandbox) error {
			_, err := c.Create(ctx, &sandbox.CreateOptions{Architecture: "arm64", Credentials: &sandbox.Credentials{NPM: true, Extra: map[string]any{"later": 1}}, Extra: extra})
			return err
		}},
		"fork": {`{"mounts":{"/d":{"drive":"d","mode":"read-write"}},"__x":"y"}`, func(ctx context.Context, c *sandbox.Client, _ *sandbox.Sandbox) error {
			_, err := c.Fork(ctx, "box", &sandbox.ForkOptions{Mounts: map[string]sandbox.Mount{"/d": {Drive: "d"}}, Extra: extra, AllowEmpty: true})
			return err
		}},
		"update": {`{"env":{"A":"b"},"__x":"y"}`, func(ctx context.Context, _ *sandbox.Client, sb *sandbox.Sandbox) error {
			return sb.Update(ctx, &sandbox.UpdateOptions{Env: env, Extra: extra})
		}},
		"get": {"?__x=y", func(ctx context.Context, c *sandbox.Client, _ *sandbox.Sandbox) error {
			_, err := c.Get(ctx, "box", &sandbox.GetOptions{Extra: extra})
			return err
		}},
		"list": {"?status=running", func(ctx context.Context, c *sandbox.Client, _ *sandbox.Sandbox) error {
			_, err := c.ListPage(ctx, &sandbox.ListOptions{Status: sandbox.StatusRunning})
			return err
		}},
		"run": {"?cmdId=mine", func(ctx context.Context, _ *sandbox.Client, sb *sandbox.Sandbox) error {
			_, err := sb.RunCommand(ctx, "x", nil, &sandbox.CommandOptions{ID: "mine"})
			return err
		}},
		"start, body": {`{"cwd":"/tmp","sudo":true,"timeout":90000,"attachStdin":true}`, func(ctx context.Context, _ *sandbox.Client, sb *sandbox.Sandbox) error {
			_, err := sb.StartCommand(ctx, "x", nil, &sandbox.StartOptions{Cwd: "/tmp", Sudo: true, Timeout: 90 * time.Second, AttachStdin: true})
			return err
		}},
		"start": {"?cmdId=mine", func(ctx context.Context, _ *sandbox.Client, sb *sandbox.Sandbox) error {
			_, err := sb.StartCommand(ctx, "x", nil, &sandbox.StartOptions{ID: "mine"})
			return err
		}},
	} {
		synctest.Test(t, func(t *testing.T) {
			var queries, bodies []string
			api := canned.API(func(req *http.Request) (*http.Response, error) {
				queries = append(queries, req.URL.RawQuery)
				if req.Body != nil && req.Method != http.MethodGet {
					body, err := io.ReadAll(req.Body)
					if err != nil {
						return nil, err
					}
					bodies = append(bodies, string(body))
				}
				return canned.JSON(200, canned.RunningSandbox), nil
			})
			sb := api.Sandbox(t)
			_ = tt.call(t.Context(), api.Client(t), sb) // the call may fail, because the response fits only some calls
			if query, ok := strings.CutPrefix(tt.want, "?"); ok {
				assert.Contains(t, strings.Join(queries, "&"), query, name)
			} else if assert.NotEmpty(t, bodies, name) {
				var want, sent map[string]any
				require.NoError(t, json.Unmarshal([]byte(tt.want), &want))
				require.NoError(t, json.Unmarshal([]byte(bodies[0]), &sent))
				for field, value := range want {
					assert.Equal(t, value, sent[field], "%s: %s", name, field)
				}
			}
		})
	}
}
