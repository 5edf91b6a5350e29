package sandbox_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-vercel/sandbox/internal/testkit"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/sandboxtest"
)

// TestStopThenFork: what was written before a stop is in the fork that is made
// right behind it, on a server that answers a stop before the snapshot is there,
// as the service does. Its clock moves with each look at it.
func TestStopThenFork(t *testing.T) {
	t.Parallel()
	rounds := 200
	if testing.Short() {
		rounds = 8
	}
	srv := sandboxtest.New(t, &sandboxtest.Options{Realistic: true})
	real := testkit.Transport(t)
	var looks atomic.Int64
	client := testkit.Client(t, srv, sandbox.ClientOptions{HTTPClient: &http.Client{Transport: testkit.RoundTripper(func(r *http.Request) (*http.Response, error) {
		if r.Method == http.MethodGet && strings.Contains(r.URL.RawQuery, "resume=false") {
			looks.Add(1)
			srv.Advance(1500 * time.Millisecond)
		}
		return real.RoundTrip(r)
	})}})
	var wg sync.WaitGroup
	work := make(chan int)
	for range 4 {
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
	assert.Greater(t, looks.Load(), int64(rounds), "stops were answered early, or nothing was tested")
}

// stopAndFork makes a sandbox with a file, stops and forks it, and looks for the
// file in the fork.
func stopAndFork(t *testing.T, client *sandbox.Client, name string) error {
	ctx := t.Context()
	sb, err := client.Create(ctx, &sandbox.CreateOptions{Name: name})
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
		err = fmt.Errorf("the file holds %q", got)
	}
	return err
}

// TestStopWithoutWaiting: with a server like the service, a fork that does not
// wait has the files of the session before. That is what Stop is there for.
func TestStopWithoutWaiting(t *testing.T) {
	t.Parallel()
	srv := sandboxtest.New(t, &sandboxtest.Options{Realistic: true})
	client := testkit.Client(t, srv, sandbox.ClientOptions{})
	sb, err := client.Create(t.Context(), &sandbox.CreateOptions{Name: "base"})
	require.NoError(t, err)
	require.NoError(t, sb.FS().WriteFile(t.Context(), "made", []byte("x"), 0o644))
	done, err := sb.Stop(t.Context(), &sandbox.StopOptions{NoWait: true})
	require.NoError(t, err)
	assert.NotEqual(t, sandbox.StatusStopped, done.Session.Status)
	fork, err := client.Fork(t.Context(), "base", nil)
	require.NoError(t, err)
	_, err = fork.FS().ReadFile(t.Context(), "made")
	assert.Error(t, err)
}
