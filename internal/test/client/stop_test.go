package client_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-vercel/sandbox/internal/test/canned"
	"github.com/go-vercel/sandbox/internal/test/needs"
	"github.com/go-vercel/sandbox/internal/test/testkit"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/internal/wire"
	"github.com/go-vercel/sandbox/sandboxtest"
)

// TestForkOfUnsaved: if a fork has none of its source's files, the client deletes it and
// returns an error. If the deletion fails, the error names the fork. With AllowEmpty, Fork
// returns the empty fork.
func TestForkOfUnsaved(t *testing.T) {
	t.Parallel()
	srv, source := start(t, nil)
	direct := testkit.Client(t, srv, sandbox.ClientOptions{})
	gate := &testkit.Gateway{Next: testkit.Transport(t)}
	client := testkit.Client(t, srv, sandbox.ClientOptions{HTTPClient: &http.Client{Transport: gate}})
	fork := func(o sandbox.ForkOptions) (*sandbox.Sandbox, error) {
		return client.Fork(t.Context(), source.Name(), &o)
	}
	_, err := fork(sandbox.ForkOptions{Name: "empty"})
	require.ErrorIs(t, err, sandbox.ErrNotSaved)
	require.ErrorContains(t, err, source.Name())
	_, err = client.Get(t.Context(), "empty", nil)
	require.ErrorIs(t, err, sandbox.ErrNotFound, "the client has deleted the fork")

	repair := srv.Inject(sandboxtest.Fault{Operation: sandboxtest.DeleteSandbox, Status: http.StatusForbidden})
	_, err = fork(sandbox.ForkOptions{Name: "remains"})
	repair()
	require.ErrorIs(t, err, sandbox.ErrNotSaved)
	require.ErrorContains(t, err, `"remains"`)
	_, err = client.Get(t.Context(), "remains", nil)
	require.NoError(t, err)

	// If another client has replaced the fork by a sandbox of the same name, this one stays.
	gate.Set(func(req *http.Request, next http.RoundTripper) (*http.Response, error) {
		if req.Method == http.MethodGet {
			gate.Set(nil)
			assert.NoError(t, direct.Delete(t.Context(), "reused", nil))
			_, err := direct.Create(t.Context(), &sandbox.CreateOptions{Name: "reused", Tags: map[string]string{"whose": "another's"}})
			assert.NoError(t, err)
		}
		return next.RoundTrip(req)
	})
	_, err = fork(sandbox.ForkOptions{Name: "reused"})
	require.ErrorIs(t, err, sandbox.ErrNotSaved)
	other, err := client.Get(t.Context(), "reused", nil)
	require.NoError(t, err)
	assert.Equal(t, "another's", other.Info().Tags["whose"])

	before := len(srv.Requests())
	empty, err := fork(sandbox.ForkOptions{AllowEmpty: true})
	require.NoError(t, err)
	assert.Empty(t, empty.CurrentSession().Info().SourceSnapshotID)
	assert.Equal(t, 1, len(srv.Requests())-before)

	_, err = source.Stop(t.Context(), nil)
	require.NoError(t, err)
	before = len(srv.Requests())
	saved, err := fork(sandbox.ForkOptions{})
	require.NoError(t, err)
	assert.NotEmpty(t, saved.CurrentSession().Info().SourceSnapshotID)
	assert.Equal(t, 1, len(srv.Requests())-before)
}

// TestStopThenFork: a fork right after Stop contains the files, although the server, like
// the service, responds to a stop before the snapshot is complete. The server's clock
// advances with each poll of the client. Each worker has its own server, so that the polls
// of other workers don't complete its stops.
func TestStopThenFork(t *testing.T) {
	t.Parallel()
	rounds, workers := 200, 4
	if !needs.Slow() {
		rounds, workers = 1, 1
	}
	var early atomic.Int64
	var wg sync.WaitGroup
	work := make(chan int)
	for range workers {
		srv := sandboxtest.New(t, &sandboxtest.Options{Realistic: true})
		real := testkit.Transport(t)
		client := testkit.Client(t, srv, sandbox.ClientOptions{HTTPClient: &http.Client{Transport: canned.RoundTripper(func(r *http.Request) (*http.Response, error) {
			if r.Method == http.MethodGet && strings.Contains(r.URL.RawQuery, "resume=false") {
				srv.Advance(1500 * time.Millisecond)
			}
			resp, err := real.RoundTrip(r)
			if err != nil || !strings.HasSuffix(r.URL.Path, "/stop") {
				return resp, err
			}
			text, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			resp.Body = io.NopCloser(bytes.NewReader(text))
			var stop wire.SessionResponse
			if assert.NoError(t, json.Unmarshal(text, &stop)) && stop.Session.Status != string(sandbox.StatusStopped) {
				early.Add(1)
			}
			return resp, err
		})}})
		wg.Go(func() {
			for i := range work {
				assert.NoError(t, stopAndFork(t, client, fmt.Sprintf("base-%d", i)), "round %d", i)
			}
		})
	}
	for i := range rounds {
		work <- i
	}
	close(work)
	wg.Wait()
	assert.EqualValues(t, rounds, early.Load(), "responses to a stop that came before the snapshot was complete")
}

// stopAndFork creates a sandbox with a file, stops and forks it, and reads the
// file in the fork.
func stopAndFork(t *testing.T, client *sandbox.Client, name string) error {
	ctx := t.Context()
	sb, err := client.Create(ctx, &sandbox.CreateOptions{Name: name, Timeout: time.Hour})
	if err != nil {
		return err
	}
	defer func() { assert.NoError(t, client.Delete(ctx, name, nil)) }()
	if err := sb.FS().WriteFile(ctx, "made", []byte(name), 0o644); err != nil {
		return err
	}
	done, err := sb.Stop(ctx, nil)
	if err != nil {
		return err
	}
	if done.Session.Status != sandbox.StatusStopped {
		return fmt.Errorf("the session is %s after Stop", done.Session.Status)
	}
	fork, err := client.Fork(ctx, name, nil)
	if err != nil {
		return err
	}
	defer func() { assert.NoError(t, fork.Delete(ctx, nil)) }()
	got, err := fork.FS().ReadFile(ctx, "made")
	if err == nil && string(got) != name {
		err = fmt.Errorf("the file contains %q", got)
	}
	return err
}

// TestStopWithoutWaiting shows why Stop waits for the snapshot: on a server that is as slow
// as the service, a fork that does not wait has none of the files.
func TestStopWithoutWaiting(t *testing.T) {
	t.Parallel()
	srv := sandboxtest.New(t, &sandboxtest.Options{Realistic: true})
	client := testkit.Client(t, srv, sandbox.ClientOptions{})
	sb, err := client.Create(t.Context(), &sandbox.CreateOptions{Name: "base"})
	require.NoError(t, err)
	require.NoError(t, sb.FS().WriteFile(t.Context(), "made", []byte("x"), 0o644))
	testkit.BeginStop(t, srv, sb)
	require.NoError(t, sb.Refresh(t.Context()))
	assert.NotEqual(t, sandbox.StatusStopped, sb.Status())
	_, err = client.Fork(t.Context(), "base", nil)
	assert.ErrorIs(t, err, sandbox.ErrNotSaved)
}

// TestStopByAStaleHandle: if the sandbox has a newer session than the handle knows, Stop
// stops the newer one. After Stop, the sandbox does not run.
func TestStopByAStaleHandle(t *testing.T) {
	t.Parallel()
	for name, stop := range map[string]func(context.Context, *sandbox.Sandbox) error{
		"Stop": func(ctx context.Context, sb *sandbox.Sandbox) error { _, err := sb.Stop(ctx, nil); return err },
		"NoWait": func(ctx context.Context, sb *sandbox.Sandbox) error {
			_, err := sb.Stop(ctx, &sandbox.StopOptions{NoWait: true})
			return err
		},
		"Close": func(_ context.Context, sb *sandbox.Sandbox) error { return sb.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			if name == "NoWait" {
				needs.Long(t, "Close does not wait either")
			}
			srv, stale := start(t, nil)
			theirs, err := testkit.Client(t, srv, sandbox.ClientOptions{}).Get(ctx, stale.Name(), nil)
			require.NoError(t, err)
			_, err = theirs.Stop(ctx, nil)
			require.NoError(t, err)
			require.NoError(t, theirs.Resume(ctx))

			require.NoError(t, stop(ctx, stale))
			require.NoError(t, theirs.Refresh(ctx))
			assert.Equal(t, sandbox.StatusStopped, theirs.Info().Status)
			assert.Equal(t, theirs.CurrentSession().ID(), stale.CurrentSession().ID())
		})
	}
}
