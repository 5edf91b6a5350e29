package promises_test

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/internal/test/needs"
	"github.com/go-vercel/sandbox/internal/test/testkit"
	"github.com/go-vercel/sandbox/sandboxtest"
)

// TestCreatesUnderLimits: four clients, like processes of one team, create more sandboxes
// at once than the service permits in three periods. All creates succeed, with few refused
// requests. The tests of internal/api check on a fake clock how long they wait.
func TestCreatesUnderLimits(t *testing.T) {
	t.Parallel()
	needs.Long(t, "waits for the periods of rate limits")
	srv := sandboxtest.New(t, &sandboxtest.Options{Mode: sandboxtest.Folder, RateLimits: true})
	const clients, each = 4, 20
	var all sync.WaitGroup
	for range clients {
		c := testkit.Client(t, srv, sandbox.ClientOptions{MaxRateLimitWait: 5 * time.Minute})
		for range each {
			all.Go(func() {
				sb, err := c.Create(t.Context(), &sandbox.CreateOptions{Ephemeral: true})
				if assert.NoError(t, err) {
					assert.NoError(t, sb.Delete(t.Context(), nil))
				}
			})
		}
	}
	all.Wait()
	sent, refused := 0, 0
	for _, r := range srv.Requests() {
		if r.Operation != sandboxtest.CreateSandbox {
			continue
		}
		sent++
		if r.Status == 429 {
			refused++
		}
	}
	assert.Equal(t, clients*each, sent-refused)
	assert.LessOrEqual(t, refused, 80)
}
