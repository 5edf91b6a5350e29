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
// at once than the service permits in three periods. All calls succeed, and the service
// refuses only few requests. The tests of internal/api check the length of the waits with a
// fake clock.
func TestCreatesUnderLimits(t *testing.T) {
	t.Parallel()
	needs.Long(t, "it waits until several periods of rate limits have passed")
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
