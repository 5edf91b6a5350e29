// Package client_test tests package sandbox from outside, as its users see it.
package client_test

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/internal/test/needs"
	"github.com/go-vercel/sandbox/internal/test/testkit"
	"github.com/go-vercel/sandbox/sandboxtest"
)

// TestMain fails the run when a goroutine is leaked.
func TestMain(m *testing.M) { testkit.Main(m) }

// newServer starts an emulator for a test that does not depend on how sandboxes are
// isolated. By default it uses folder mode, which takes half the time. With SANDBOX_SLOW=1
// it uses the most realistic mode that this machine supports.
func newServer(t *testing.T) *sandboxtest.Server {
	t.Helper()
	if needs.Slow() {
		return sandboxtest.New(t, nil)
	}
	return sandboxtest.New(t, &sandboxtest.Options{Mode: sandboxtest.Folder})
}

// start is like testkit.Start, but uses newServer.
func start(t *testing.T, create *sandbox.CreateOptions) (*sandboxtest.Server, *sandbox.Sandbox) {
	t.Helper()
	srv := newServer(t)
	sb, err := testkit.Client(t, srv, sandbox.ClientOptions{}).Create(t.Context(), testkit.Lasting(create))
	require.NoError(t, err)
	return srv, sb
}

// shared is the emulator for tests that need only a sandbox. It is closed when the last
// test that uses it ends.
var shared struct {
	sync.Mutex
	srv   *sandboxtest.Server
	users int
}

// share creates a sandbox for a test in the shared emulator.
func share(t *testing.T, create *sandbox.CreateOptions) *sandbox.Sandbox {
	t.Helper()
	shared.Lock()
	defer shared.Unlock()
	if shared.users == 0 {
		opts := &sandboxtest.Options{Mode: sandboxtest.Folder}
		if needs.Slow() {
			opts = nil
		}
		srv, err := sandboxtest.NewServer(opts)
		require.NoError(t, err)
		shared.srv = srv
	}
	shared.users++
	t.Cleanup(func() {
		shared.Lock()
		defer shared.Unlock()
		if shared.users--; shared.users == 0 {
			assert.NoError(t, shared.srv.Close())
		}
	})
	sb, err := testkit.Client(t, shared.srv, sandbox.ClientOptions{}).Create(t.Context(), testkit.Lasting(create))
	require.NoError(t, err)
	t.Cleanup(func() {
		if err := sb.Delete(context.WithoutCancel(t.Context()), nil); !errors.Is(err, sandbox.ErrDeleted) {
			assert.NoError(t, err)
		}
	})
	return sb
}

// behind is like testkit.Behind, but uses newServer.
func behind(t *testing.T, opts sandbox.ClientOptions, create *sandbox.CreateOptions) (*sandboxtest.Server, *testkit.Gateway, *sandbox.Sandbox, *sandbox.Sandbox) {
	t.Helper()
	srv := newServer(t)
	gate := &testkit.Gateway{Next: testkit.Transport(t)}
	opts.HTTPClient = &http.Client{Transport: gate}
	sb, err := testkit.Client(t, srv, opts).Create(t.Context(), testkit.Lasting(create))
	require.NoError(t, err)
	direct, err := testkit.Client(t, srv, sandbox.ClientOptions{}).Get(t.Context(), sb.Name(), &sandbox.GetOptions{NoResume: true})
	require.NoError(t, err)
	return srv, gate, sb, direct
}
