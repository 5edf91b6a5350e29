package promises_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/internal/test/canned"
	"github.com/go-vercel/sandbox/internal/test/testkit"
)

// replayer is a proxy that caches the first response to a GET of each path. It ignores the
// query.
type replayer struct {
	next  http.RoundTripper
	mu    sync.Mutex
	known map[string][]byte
}

func (r *replayer) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Method != http.MethodGet || testkit.IsLogs(req) {
		return r.next.RoundTrip(req)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if body, ok := r.known[req.URL.Path]; ok {
		resp := canned.JSON(200, string(body))
		resp.Request = req
		return resp, nil
	}
	resp, err := r.next.RoundTrip(req)
	if err != nil || resp.StatusCode != http.StatusOK {
		return resp, err
	}
	body, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	if err != nil {
		return nil, err
	}
	r.known[req.URL.Path] = body
	resp.Body = io.NopCloser(bytes.NewReader(body))
	return resp, nil
}

// TestStaleResponses: another client has replaced a handle's sandbox, but a proxy still
// returns the old responses. Each call returns an error and does not affect the new
// sandbox. The exception is Delete: the API deletes by name, so the new sandbox is deleted,
// and the error matches ErrReplaced.
func TestStaleResponses(t *testing.T) {
	t.Parallel()
	calls := map[string]func(context.Context, *sandbox.Client, *sandbox.Sandbox) error{
		"RunCommand": func(ctx context.Context, _ *sandbox.Client, sb *sandbox.Sandbox) error {
			return errorOf(sb.RunCommand(ctx, "sh", []string{"-c", "echo x > ours"}, nil))
		},
		"WriteFiles": func(ctx context.Context, _ *sandbox.Client, sb *sandbox.Sandbox) error {
			return sb.FS().WriteFile(ctx, "ours", []byte("x"), 0o644)
		},
		"RemoveAll": func(ctx context.Context, _ *sandbox.Client, sb *sandbox.Sandbox) error {
			return sb.FS().RemoveAll(ctx, "theirs")
		},
		"Update": func(ctx context.Context, _ *sandbox.Client, sb *sandbox.Sandbox) error {
			return sb.Update(ctx, &sandbox.UpdateOptions{Tags: map[string]string{"a": "b"}})
		},
		"Snapshot": func(ctx context.Context, _ *sandbox.Client, sb *sandbox.Sandbox) error {
			return errorOf(sb.Snapshot(ctx, nil))
		},
		"Delete": func(ctx context.Context, _ *sandbox.Client, sb *sandbox.Sandbox) error { return sb.Delete(ctx, nil) },
		"List": func(ctx context.Context, c *sandbox.Client, _ *sandbox.Sandbox) error {
			return errorOf(sandbox.Collect(c.List(ctx, &sandbox.ListOptions{Limit: 1})))
		},
	}
	for name, call := range calls {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := testkit.LightServer(t)
			other := testkit.Client(t, srv, sandbox.ClientOptions{})
			proxy := &replayer{next: testkit.Transport(t), known: map[string][]byte{}}
			c := testkit.Client(t, srv, sandbox.ClientOptions{
				HTTPClient: &http.Client{Transport: proxy}, RetryWait: time.Millisecond, Reattach: &sandbox.ReattachOptions{Wait: time.Millisecond},
			})
			for _, name := range []string{"work", "second", "third"} {
				_, err := other.Create(t.Context(), &sandbox.CreateOptions{Name: name})
				require.NoError(t, err)
			}
			sb, err := c.Get(t.Context(), "work", nil)
			require.NoError(t, err)
			require.NoError(t, other.Delete(t.Context(), "work", nil))
			theirs, err := other.Create(t.Context(), &sandbox.CreateOptions{Name: "work"})
			require.NoError(t, err)
			testkit.Output(t, theirs, "touch", "theirs")
			ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
			defer cancel()
			err = call(ctx, c, sb)
			require.NoError(t, ctx.Err(), "the call did not return: %v", err)
			require.Error(t, err)
			if name == "Delete" {
				require.ErrorIs(t, err, sandbox.ErrReplaced)
				return
			}
			require.NoError(t, theirs.Refresh(t.Context()))
			assert.Equal(t, sandbox.StatusRunning, theirs.Status())
			assert.Equal(t, "theirs", strings.TrimSpace(testkit.Output(t, theirs, "ls")))
		})
	}
}
