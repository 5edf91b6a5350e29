// Package testkit has helpers for the tests of several packages. They create sandboxes of an
// emulator, and put a gateway between the emulator and a client.
package testkit

import (
	"bytes"
	"cmp"
	"context"
	"math/rand/v2"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/auth"
	"github.com/go-vercel/sandbox/internal/test/needs"
	"github.com/go-vercel/sandbox/sandboxtest"
	"github.com/stretchr/testify/require"
)

// LockedBuffer is a buffer for concurrent writers.
type LockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *LockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *LockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// DirNames lists a local directory, including temporary files of the SDK.
func DirNames(t *testing.T, dir string) []string {
	t.Helper()
	list, err := os.ReadDir(dir)
	require.NoError(t, err)
	names := []string{}
	for _, d := range list {
		names = append(names, d.Name())
	}
	return names
}

// Output runs a command and returns its output.
func Output(t *testing.T, sb *sandbox.Sandbox, name string, args ...string) string {
	t.Helper()
	done, err := sb.RunCommand(t.Context(), name, args, nil)
	require.NoError(t, err)
	out, err := done.CombinedOutput(t.Context())
	require.NoError(t, err)
	return out
}

// Patience is how long a test waits for a condition before it fails. A test that passes does
// not wait that long, even on a slow machine.
const Patience = 2 * time.Minute

// Linger sleeps in real time. Use it for random delays, between two checks, or to watch for
// something that must not happen. If d is too short or too long for a machine, a test may
// miss a fault, but must not fail. The linter forbids all other sleeps in tests.
func Linger(d time.Duration) { time.Sleep(d) }

// TUN names the requirement of network policies if sandboxes have namespaces.
const TUN = "a /dev/net/tun that this user may open, for networks of sandboxes"

// Policies skips the test unless the emulator enforces network policies here.
func Policies(tb testing.TB, srv *sandboxtest.Server) {
	tb.Helper()
	switch {
	case srv.Mode() == sandboxtest.Folder:
		needs.Missing(tb, "namespaces, for networks of sandboxes")
	case !srv.Enforces().Policies:
		needs.Missing(tb, TUN)
	}
}

// Seed returns a random seed for a test, or SANDBOX_TEST_SEED, and logs it.
func Seed(t *testing.T) uint64 {
	t.Helper()
	seed := rand.Uint64()
	if text := os.Getenv("SANDBOX_TEST_SEED"); text != "" {
		var err error
		seed, err = strconv.ParseUint(text, 10, 64)
		require.NoError(t, err)
	}
	t.Logf("SANDBOX_TEST_SEED=%d", seed)
	return seed
}

// LightServer starts an emulator for a test that does not depend on how sandboxes are
// isolated. By default it uses folder mode, which takes half the time. With SANDBOX_SLOW=1
// it uses the most realistic mode that this machine supports.
func LightServer(t *testing.T) *sandboxtest.Server {
	t.Helper()
	if needs.Slow() {
		return sandboxtest.New(t, nil)
	}
	return sandboxtest.New(t, &sandboxtest.Options{Mode: sandboxtest.Folder})
}

// shared is the emulator that the tests of a package share. Main closes it.
var shared struct {
	sync.Mutex
	srv *sandboxtest.Server
}

// SharedServer returns an emulator like one of [LightServer], which the tests of a package
// share. Use it for tests that create sandboxes without names, and that neither count
// requests nor change the emulator's clock, faults or options.
func SharedServer(t *testing.T) *sandboxtest.Server {
	t.Helper()
	shared.Lock()
	defer shared.Unlock()
	if shared.srv == nil {
		opts := &sandboxtest.Options{Realistic: os.Getenv("SANDBOX_TEST_REALISTIC") == "1"}
		if !needs.Slow() {
			opts.Mode = sandboxtest.Folder
		}
		var err error
		shared.srv, err = sandboxtest.NewServer(opts)
		require.NoError(t, err)
	}
	return shared.srv
}

// SharedStart is like LightStart, but uses [SharedServer].
func SharedStart(t *testing.T, create *sandbox.CreateOptions) (*sandboxtest.Server, *sandbox.Sandbox) {
	t.Helper()
	return startOn(t, SharedServer(t), create)
}

// Start starts an emulator for a test and creates a sandbox.
func Start(t *testing.T, create *sandbox.CreateOptions) (*sandboxtest.Server, *sandbox.Sandbox) {
	t.Helper()
	return startOn(t, sandboxtest.New(t, nil), create)
}

// LightStart is like Start, but uses [LightServer].
func LightStart(t *testing.T, create *sandbox.CreateOptions) (*sandboxtest.Server, *sandbox.Sandbox) {
	t.Helper()
	return startOn(t, LightServer(t), create)
}

func startOn(t *testing.T, srv *sandboxtest.Server, create *sandbox.CreateOptions) (*sandboxtest.Server, *sandbox.Sandbox) {
	t.Helper()
	sb, err := Client(t, srv, sandbox.ClientOptions{}).Create(t.Context(), Lasting(create))
	require.NoError(t, err)
	return srv, sb
}

// Lasting returns the options with a timeout of an hour, unless they have one. So the session
// does not end during the test, even on a slow machine.
func Lasting(create *sandbox.CreateOptions) *sandbox.CreateOptions {
	opts := *cmp.Or(create, new(sandbox.CreateOptions))
	opts.Timeout = cmp.Or(opts.Timeout, time.Hour)
	return &opts
}

// Client returns a client of the emulator with the given options.
func Client(t *testing.T, srv *sandboxtest.Server, opts sandbox.ClientOptions) *sandbox.Client {
	t.Helper()
	opts.BaseURL, opts.Credentials = srv.URL, Credentials(srv)
	client, err := sandbox.NewClient(&opts)
	require.NoError(t, err)
	t.Cleanup(client.CloseIdleConnections)
	return client
}

// Transport returns a transport whose connections are closed at the end of the test.
func Transport(t *testing.T) *http.Transport {
	t.Helper()
	tr := &http.Transport{MaxIdleConnsPerHost: 64}
	t.Cleanup(tr.CloseIdleConnections)
	return tr
}

// Count returns how many requests for an operation the emulator has received.
func Count(srv *sandboxtest.Server, op sandboxtest.Operation) int {
	n := 0
	for _, r := range srv.Requests() {
		if r.Operation == op {
			n++
		}
	}
	return n
}

// Credentials returns a provider with the credentials of an emulator.
func Credentials(srv *sandboxtest.Server) auth.Provider {
	c := srv.Credentials()
	return auth.Static(auth.Credentials{Token: c.Token, TeamID: c.TeamID, ProjectID: c.ProjectID})
}

// OddNames are file names that shells, options and line-based listings may
// mishandle.
var OddNames = []string{
	"with space", " leading", "trailing ", "new\nline", "tab\t", "quote'", `double"`, "pipe|f", "-rf", "--help", "-", ".hidden", "...",
	"$HOME", "`id`", "*", "?", "[a]", "~", "#", "a\\b", "é", "日本語", "emoji🙂", "\u202e", "!", "(", "&", ";", "%s", "a=b", "\x01", "\\x41",
	strings.Repeat("n", 255),
}

// StopElsewhere stops a sandbox with another client, so that the handle still considers it
// running.
func StopElsewhere(t *testing.T, srv *sandboxtest.Server, sb *sandbox.Sandbox) {
	t.Helper()
	other, err := Client(t, srv, sandbox.ClientOptions{}).Get(context.Background(), sb.Name(), &sandbox.GetOptions{NoResume: true})
	require.NoError(t, err)
	_, err = other.Stop(context.Background(), &sandbox.StopOptions{NoWait: true})
	require.NoError(t, err)
}

// BeginStop stops a sandbox with another client, and returns while the session is still
// stopping. The emulator must be [sandboxtest.Options.Realistic].
func BeginStop(t *testing.T, srv *sandboxtest.Server, sb *sandbox.Sandbox) {
	t.Helper()
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		StopElsewhere(t, srv, sb)
	}()
	client := Client(t, srv, sandbox.ClientOptions{})
	require.Eventually(t, func() bool {
		now, err := client.Get(context.Background(), sb.Name(), &sandbox.GetOptions{NoResume: true})
		return err == nil && now.Status() == sandbox.StatusStopping
	}, Patience, time.Millisecond)
	srv.Advance(1500 * time.Millisecond) // until the emulator responds to the stop
	<-stopped
}

// APIError returns the API's error that err wraps.
func APIError(t *testing.T, err error) *sandbox.APIError {
	t.Helper()
	var e *sandbox.APIError
	require.ErrorAs(t, err, &e)
	return e
}

// AdvanceWhile advances the emulator's clock, 400 times as fast as real time, until the test
// calls finish. Sessions that must not end during this time need a long timeout.
func AdvanceWhile(srv *sandboxtest.Server) (finish func()) {
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				srv.Advance(20 * time.Second)
			case <-stop:
				return
			}
		}
	}()
	return func() { close(stop); <-stopped }
}
