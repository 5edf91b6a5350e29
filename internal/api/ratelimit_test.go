package api

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestReadRateLimit(t *testing.T) {
	header := func(limit, remaining, reset string) http.Header {
		h := http.Header{}
		for name, v := range map[string]string{"X-Ratelimit-Limit": limit, "X-Ratelimit-Remaining": remaining, "X-Ratelimit-Reset": reset} {
			if v != "" {
				h.Set(name, v)
			}
		}
		return h
	}
	for _, tc := range []struct {
		name   string
		header http.Header
		want   RateLimit
		ok     bool
	}{
		{"all", header("1000", "997", "1790987560"), RateLimit{1000, 997, time.Unix(1790987560, 0)}, true},
		{"nothing left", header("20", "0", "1790987503"), RateLimit{20, 0, time.Unix(1790987503, 0)}, true},
		{"remaining alone", header("", "5", ""), RateLimit{Remaining: 5}, true},
		{"none", header("", "", ""), RateLimit{}, false},
		{"limit alone", header("1000", "", "1790987560"), RateLimit{}, false},
		{"words", header("many", "some", "soon"), RateLimit{}, false},
		{"negative", header("-1", "-1", "-1"), RateLimit{}, false},
		{"odd limit and reset", header("-1", "3", "soon"), RateLimit{Remaining: 3}, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, ok := ReadRateLimit(tc.header)
			assert.Equal(t, tc.ok, ok)
			assert.Equal(t, tc.want, got)
		})
	}
}

// TestPollPause: the last tenth of a limit is spread over the time until the reset.
func TestPollPause(t *testing.T) {
	const usual = 500 * time.Millisecond
	for _, tc := range []struct {
		name             string
		limit, remaining int
		reset            time.Duration
		want             time.Duration
	}{
		{"plenty", 1000, 900, time.Minute, usual},
		{"a tenth", 1000, 100, time.Minute, usual},
		{"little", 1000, 19, time.Minute, 3 * time.Second},
		{"less than a tenth, and soon whole", 1000, 90, time.Second, usual},
		{"nothing", 1000, 0, 5 * time.Second, 5 * time.Second},
		{"nothing for long", 1000, 0, time.Minute, maxPollPause},
		{"reset passed", 1000, 0, -time.Second, usual},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := testClient(nil)
				assert.Equal(t, usual, c.PollPause(GetSession, usual), "before any response")
				c.storeLimit(GetSession, http.Header{
					"X-Ratelimit-Limit":     {fmt.Sprint(tc.limit)},
					"X-Ratelimit-Remaining": {fmt.Sprint(tc.remaining)},
					"X-Ratelimit-Reset":     {fmt.Sprint(time.Now().Add(tc.reset).Unix())},
				})
				assert.Equal(t, tc.want, c.PollPause(GetSession, usual))
				assert.Equal(t, usual, c.PollPause(GetSandbox, usual), "another operation has a budget of its own")
			})
		})
	}
}

// TestForeignLimits: the response of a proxy changes neither the pauses nor the clock,
// whatever its headers.
func TestForeignLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const usual = 500 * time.Millisecond
		for _, status := range []int{200, 404, 429, 502} {
			c := testClient(roundTripper(func(*http.Request) (*http.Response, error) {
				resp := respond(status, "<html>")
				resp.Header = http.Header{
					"Content-Type": {"text/html"}, "X-Ratelimit-Limit": {"1000"}, "X-Ratelimit-Remaining": {"1"},
					"X-Ratelimit-Reset": {fmt.Sprint(time.Now().Add(time.Minute).Unix())}, "Date": {time.Now().Add(time.Hour).UTC().Format(http.TimeFormat)},
				}
				return resp, nil
			}))
			require.Error(t, c.Do(t.Context(), &Request{Op: GetSession, Path: []string{"s"}}, nil))
			assert.Equal(t, usual, c.PollPause(GetSession, usual), status)
			assert.False(t, c.Vouches(), status)
			assert.Equal(t, time.Now(), c.Now(), status)
		}
	})
}

// TestPollPauseByTheServicesClock: the reset counts by the service's clock.
func TestPollPauseByTheServicesClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := testClient(nil)
		ahead := time.Now().Add(time.Hour)
		c.clock.update(http.Header{"Date": {ahead.UTC().Format(http.TimeFormat)}}, time.Now())
		c.storeLimit(GetSession, http.Header{
			"X-Ratelimit-Limit": {"1000"}, "X-Ratelimit-Remaining": {"0"}, "X-Ratelimit-Reset": {fmt.Sprint(ahead.Add(5 * time.Second).Unix())},
		})
		assert.Equal(t, 5*time.Second, c.PollPause(GetSession, time.Second))
	})
}

// TestRateLimits: the limit in a refusal is stored too.
func TestRateLimits(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Ratelimit-Limit", "1000")
		w.Header().Set("X-Ratelimit-Remaining", "42")
		if r.Method == http.MethodPost {
			w.WriteHeader(http.StatusBadRequest)
		}
		_, _ = w.Write([]byte(`{"session":{"id":"a"},"error":{"code":"x"}}`))
	}))
	defer srv.Close()
	base, err := url.Parse(srv.URL)
	require.NoError(t, err)
	c := testClient(srv.Client().Transport)
	c.cfg.BaseURL = base
	require.NoError(t, c.Do(t.Context(), &Request{Op: GetSession, Path: []string{"a"}}, nil))
	require.Error(t, c.Do(t.Context(), &Request{Op: StopSession, Path: []string{"a"}}, nil))
	for _, op := range []*Op{GetSession, StopSession} {
		limit, known := c.limits.Load(op)
		require.True(t, known, op.Name)
		assert.Equal(t, RateLimit{Limit: 1000, Remaining: 42}, limit)
	}
}
