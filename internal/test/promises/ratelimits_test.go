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

// TestCreatesUnderLimits: what four clients create at once, as several processes of
// a team would, and more than the service permits in three of its periods, all
// succeeds, and few requests are sent in vain. How long they wait is tested on a
// clock of its own, in internal/api.
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
