package reliability_test

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/internal/testkit"
	"github.com/go-vercel/sandbox/sandboxtest"
)

// TestCreatesUnderLimits: more creations at once than the service permits in two
// of its periods all succeed, and hardly any is sent in vain. How the waits
// are divided is tested on a clock of its own, in internal/api.
func TestCreatesUnderLimits(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("waits for the periods of rate limits")
	}
	srv := sandboxtest.New(t, &sandboxtest.Options{Mode: sandboxtest.Folder, RateLimits: true})
	c := testkit.Client(t, srv, sandbox.ClientOptions{MaxRateLimitWait: 5 * time.Minute})
	const many = 50
	var all sync.WaitGroup
	for range many {
		all.Go(func() {
			sb, err := c.Create(t.Context(), &sandbox.CreateOptions{Ephemeral: true})
			if assert.NoError(t, err) {
				assert.NoError(t, sb.Delete(t.Context(), nil))
			}
		})
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
	assert.Equal(t, many, sent-refused)
	assert.LessOrEqual(t, refused, many/20)
}
