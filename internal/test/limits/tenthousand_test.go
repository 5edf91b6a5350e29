package limits_test

import (
	"context"
	"fmt"
	"net/http"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/auth"
	"github.com/go-vercel/sandbox/internal/test/canned"
	"github.com/go-vercel/sandbox/internal/test/needs"
)

// TestTenThousand measures the memory of 10,000 handles, and of 10,000 calls that wait for a
// rate limit. By default it uses 1,000 of each.
//
// It does not run in parallel with other tests, because it counts their memory, too.
func TestTenThousand(t *testing.T) {
	many := 1_000
	if needs.Slow() {
		many = 10_000
	}
	var spent atomic.Bool
	waiting := make(chan struct{}, many)
	c, err := sandbox.NewClient(&sandbox.ClientOptions{
		BaseURL: "https://api.test", MaxRateLimitWait: time.Hour,
		Credentials: auth.Static(auth.Credentials{Token: "any", TeamID: "team", ProjectID: "project"}),
		HTTPClient: &http.Client{Transport: canned.RoundTripper(func(*http.Request) (*http.Response, error) {
			resp := canned.JSON(200, `{"sandbox":`+fmt.Sprintf(canned.Sandbox, 0)+`,"session":`+canned.Session+`,"routes":[]}`)
			left := many * 2
			if spent.Load() {
				left = 0
			}
			resp.Header.Set("X-Ratelimit-Limit", strconv.Itoa(many*2))
			resp.Header.Set("X-Ratelimit-Remaining", strconv.Itoa(left))
			resp.Header.Set("X-Ratelimit-Reset", strconv.FormatInt(time.Now().Add(30*time.Minute).Unix(), 10))
			return resp, nil
		})},
	})
	require.NoError(t, err)
	base, goroutines := inUse()

	handles := make([]*sandbox.Sandbox, many)
	for i := range handles {
		handles[i], err = c.Create(t.Context(), nil)
		require.NoError(t, err)
	}
	held, now := inUse()
	t.Logf("a handle: %.1f KB; %d goroutines for all", float64((held-base)/many)/1024, now-goroutines)
	assert.Less(t, (held-base)/many, 8<<10)
	assert.LessOrEqual(t, now-goroutines, 2)

	spent.Store(true)
	_, err = c.Create(t.Context(), nil)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for range many {
		all.Go(func() {
			waiting <- struct{}{}
			_, err := c.Create(ctx, nil)
			assert.ErrorIs(t, err, context.Canceled)
		})
	}
	for range many {
		<-waiting
	}
	require.Eventually(t, func() bool { return runtime.NumGoroutine() >= goroutines+many && isQuiet() }, 2*time.Minute, 10*time.Millisecond)
	queued, now := inUse()
	t.Logf("a call that waits: %.1f KB, %.2f goroutines", float64((queued-held)/many)/1024, float64(now-goroutines)/float64(many))
	assert.Less(t, (queued-held)/many, 32<<10)
	cancel()
	all.Wait()
	runtime.KeepAlive(handles)
}

// isQuiet reports whether all goroutines wait: then the memory in use does not change.
func isQuiet() bool {
	memory, _ := inUse()
	again, _ := inUse()
	return max(memory, again)-min(memory, again) < 64<<10
}

// inUse returns the memory in use and the number of goroutines.
func inUse() (memory, goroutines int) {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc + m.StackInuse), runtime.NumGoroutine()
}
