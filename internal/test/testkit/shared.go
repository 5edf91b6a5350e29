package testkit

import (
	"context"
	"errors"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/internal/test/needs"
	"github.com/go-vercel/sandbox/sandboxtest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// emulator is a server that parallel tests share, because starting one takes more CPU time
// than most tests. It runs while a test uses it. The tests must not move its clock. They
// restrict faults to their own sandbox (see [Of]), count requests with [Gateway.Sent], and
// choose names that no other test of the package uses.
type emulator struct {
	mode sandboxtest.Mode

	mu    sync.Mutex
	srv   *sandboxtest.Server
	users int
}

// folders is for tests that don't depend on how sandboxes are isolated, and isolated for
// those that do.
var folders, isolated = &emulator{mode: sandboxtest.Folder}, &emulator{}

// SharedServer is like [LightServer], but returns an emulator that tests share.
func SharedServer(t *testing.T) *sandboxtest.Server {
	t.Helper()
	if needs.Slow() {
		return isolated.use(t)
	}
	return folders.use(t)
}

// SharedIsolated returns an emulator that tests share, in the machine's best mode.
func SharedIsolated(t *testing.T) *sandboxtest.Server {
	t.Helper()
	return isolated.use(t)
}

// use returns the emulator's server, which runs until the end of the test.
func (e *emulator) use(t *testing.T) *sandboxtest.Server {
	t.Helper()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.users == 0 {
		realistic := os.Getenv("SANDBOX_TEST_REALISTIC") == "1" // as sandboxtest.New does
		srv, err := sandboxtest.NewServer(&sandboxtest.Options{Mode: e.mode, Realistic: realistic})
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

// Share creates a sandbox on a [SharedServer], and deletes it at the end of the test.
func Share(t *testing.T, create *sandbox.CreateOptions) (*sandboxtest.Server, *sandbox.Sandbox) {
	t.Helper()
	srv, sb := startOn(t, SharedServer(t), create)
	DeleteLast(t, sb)
	return srv, sb
}

// ShareIsolated is like [Share], but uses [SharedIsolated].
func ShareIsolated(t *testing.T, create *sandbox.CreateOptions) (*sandboxtest.Server, *sandbox.Sandbox) {
	t.Helper()
	srv, sb := startOn(t, SharedIsolated(t), create)
	DeleteLast(t, sb)
	return srv, sb
}

// ShareBehind is [BehindOn] with a [SharedServer].
func ShareBehind(t *testing.T, opts sandbox.ClientOptions, create *sandbox.CreateOptions) (*sandboxtest.Server, *Gateway, *sandbox.Sandbox, *sandbox.Sandbox) {
	t.Helper()
	srv, gate, sb, direct := BehindOn(t, SharedServer(t), opts, create)
	DeleteLast(t, direct)
	return srv, gate, sb, direct
}

// DeleteLast deletes the sandbox at the end of the test, if the test has not.
func DeleteLast(t *testing.T, sb *sandbox.Sandbox) {
	t.Helper()
	t.Cleanup(func() {
		err := sb.Delete(context.WithoutCancel(t.Context()), nil)
		if !errors.Is(err, sandbox.ErrDeleted) && !errors.Is(err, sandbox.ErrNotFound) {
			assert.NoError(t, err)
		}
	})
}

// Of returns a function for [sandboxtest.Fault.Match] that matches the requests for a
// sandbox and for its current session.
func Of(sb *sandbox.Sandbox) func(*http.Request) bool {
	return func(req *http.Request) bool {
		return strings.Contains(req.URL.Path, sb.CurrentSession().ID()) || strings.HasSuffix(req.URL.Path, "/"+sb.Name())
	}
}
