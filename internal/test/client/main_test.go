// Package client_test tests package sandbox from outside, as its users see it.
package client_test

import (
	"context"
	"errors"
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

// emulator is shared by parallel tests that need nothing of it but a sandbox: starting one
// takes more CPU time than most tests. It runs while there is such a test.
type emulator struct {
	mode sandboxtest.Mode

	mu    sync.Mutex
	srv   *sandboxtest.Server
	users int
}

// folders is for tests that don't depend on how sandboxes are isolated, and isolated for
// those that do.
var folders, isolated = &emulator{mode: sandboxtest.Folder}, &emulator{}

// share returns a sandbox of its own in the emulator folders, which runs in the machine's
// best mode with SANDBOX_SLOW=1.
func share(t *testing.T, create *sandbox.CreateOptions) *sandbox.Sandbox {
	t.Helper()
	_, sb := shareServer(t, create)
	return sb
}

// shareServer is share for a test that also needs other clients. It must not move the
// emulator's clock, inject faults or count requests.
func shareServer(t *testing.T, create *sandbox.CreateOptions) (*sandboxtest.Server, *sandbox.Sandbox) {
	t.Helper()
	return light().sandbox(t, create)
}

// light returns the emulator for tests that don't depend on how sandboxes are isolated.
func light() *emulator {
	if needs.Slow() {
		return isolated
	}
	return folders
}

// shareIsolated returns a sandbox of its own in the emulator isolated.
func shareIsolated(t *testing.T, create *sandbox.CreateOptions) *sandbox.Sandbox {
	t.Helper()
	_, sb := isolated.sandbox(t, create)
	return sb
}

func (e *emulator) sandbox(t *testing.T, create *sandbox.CreateOptions) (*sandboxtest.Server, *sandbox.Sandbox) {
	t.Helper()
	srv := e.use(t)
	sb, err := testkit.Client(t, srv, sandbox.ClientOptions{}).Create(t.Context(), testkit.Lasting(create))
	require.NoError(t, err)
	deleteLast(t, sb)
	return srv, sb
}

// deleteLast deletes the sandbox at the end of the test, if the test has not.
func deleteLast(t *testing.T, sb *sandbox.Sandbox) {
	t.Cleanup(func() {
		if err := sb.Delete(context.WithoutCancel(t.Context()), nil); !errors.Is(err, sandbox.ErrDeleted) {
			assert.NoError(t, err)
		}
	})
}

// use returns the emulator's server, which runs until the end of the test.
func (e *emulator) use(t *testing.T) *sandboxtest.Server {
	t.Helper()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.users == 0 {
		srv, err := sandboxtest.NewServer(&sandboxtest.Options{Mode: e.mode})
		require.NoError(t, err)
		e.srv = srv
	}
	e.users++
	t.Cleanup(func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		if e.users--; e.users == 0 {
			assert.NoError(t, e.srv.Close())
		}
	})
	return e.srv
}

// behind is [testkit.BehindOn] with a server that tests share; see shareServer.
func behind(t *testing.T, opts sandbox.ClientOptions, create *sandbox.CreateOptions) (*sandboxtest.Server, *testkit.Gateway, *sandbox.Sandbox, *sandbox.Sandbox) {
	t.Helper()
	srv, gate, sb, direct := testkit.BehindOn(t, light().use(t), opts, create)
	deleteLast(t, direct)
	return srv, gate, sb, direct
}
