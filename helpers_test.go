package sandbox_test

import (
	"net/http"
	"regexp"
	"testing"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/auth"
	"github.com/go-vercel/sandbox/sandboxtest"
	"github.com/stretchr/testify/require"
)

// start returns an emulator for a test with a sandbox on it.
func start(t *testing.T, create *sandbox.CreateOptions) (*sandboxtest.Server, *sandbox.Sandbox) {
	t.Helper()
	srv := sandboxtest.New(t, nil)
	sb, err := clientOf(t, srv, sandbox.ClientOptions{}).Create(t.Context(), create)
	require.NoError(t, err)
	return srv, sb
}

// clientOf returns a client of the emulator with options of its own.
func clientOf(t *testing.T, srv *sandboxtest.Server, opts sandbox.ClientOptions) *sandbox.Client {
	t.Helper()
	opts.BaseURL, opts.Credentials = srv.URL, credentialsOf(srv)
	client, err := sandbox.NewClient(&opts)
	require.NoError(t, err)
	t.Cleanup(client.CloseIdleConnections)
	return client
}

// transport returns a transport that is closed with the test.
func transport(t *testing.T) *http.Transport {
	t.Helper()
	tr := &http.Transport{MaxIdleConnsPerHost: 64}
	t.Cleanup(tr.CloseIdleConnections)
	return tr
}

// count returns how many requests of an operation the emulator got.
func count(srv *sandboxtest.Server, op sandboxtest.Operation) int {
	n := 0
	for _, r := range srv.Requests() {
		if r.Operation == op {
			n++
		}
	}
	return n
}

func credentialsOf(srv *sandboxtest.Server) auth.Provider {
	c := srv.Credentials()
	return auth.Static(auth.Credentials{Token: c.Token, TeamID: c.TeamID, ProjectID: c.ProjectID})
}

func mustMatch(pattern string) *regexp.Regexp { return regexp.MustCompile(pattern) }
