package cli

import (
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/auth"
	"github.com/go-vercel/sandbox/sandboxtest"
)

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestOrphansMeanwhile stops a sandbox between two requests of the search for
// snapshots that no sandbox uses. Its snapshot is not one of them.
func TestOrphansMeanwhile(t *testing.T) {
	t.Parallel()
	server := sandboxtest.New(t, nil)
	sb, err := server.Client().Create(t.Context(), nil)
	require.NoError(t, err)
	var once sync.Once
	client, err := sandbox.NewClient(&sandbox.ClientOptions{
		Credentials: auth.Static(server.Credentials()), BaseURL: server.URL,
		HTTPClient: &http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
			resp, err := http.DefaultTransport.RoundTrip(r)
			once.Do(func() {
				_, err := sb.Stop(t.Context(), nil)
				assert.NoError(t, err)
			})
			return resp, err
		})},
	})
	require.NoError(t, err)
	t.Cleanup(client.CloseIdleConnections)
	a := &app{client: client, now: func() time.Time { return time.Now().Add(time.Minute) }}
	ids, err := a.orphans(t.Context(), nil, 0)
	require.NoError(t, err)
	assert.Empty(t, ids)
}
