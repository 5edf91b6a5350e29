package promises_test

import (
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/auth"
	"github.com/go-vercel/sandbox/internal/test/canned"
	"github.com/go-vercel/sandbox/internal/test/testkit"
)

// TestMaxRateLimitWait: a request waits at most MaxRateLimitWait for the reset of a used-up
// limit.
func TestMaxRateLimitWait(t *testing.T) {
	t.Parallel()
	for longest, sent := range map[time.Duration]int{0: 2, 10 * time.Second: 1, time.Hour: 2, -1: 2} {
		synctest.Test(t, func(t *testing.T) {
			n := 0
			c, err := sandbox.NewClient(&sandbox.ClientOptions{
				Credentials: auth.Static(auth.Credentials{Token: "tok", TeamID: "team", ProjectID: "prj"}), BaseURL: "https://api.test", MaxRateLimitWait: longest,
				HTTPClient: &http.Client{Transport: canned.API(func(r *http.Request) (*http.Response, error) {
					n++
					resp := canned.JSON(200, canned.RunningSandbox)
					resp.Header.Set("X-RateLimit-Limit", "1")
					resp.Header.Set("X-RateLimit-Remaining", "0")
					resp.Header.Set("X-RateLimit-Reset", strconv.FormatInt(time.Now().Add(time.Minute).Unix(), 10))
					return resp, nil
				})},
			})
			require.NoError(t, err)
			began := time.Now()
			_, err = c.Get(t.Context(), "box", nil)
			require.NoError(t, err)
			_, err = c.Get(t.Context(), "box", nil)
			assert.Equal(t, sent == 1, errors.Is(err, sandbox.ErrRateLimited), "%v", err)
			assert.Equal(t, sent, n)
			assert.Equal(t, longest >= 0 && sent == 2, time.Since(began) >= time.Minute, "%v", longest)
		})
	}
}

// TestReattachLimit: the client gives up repairing a stream after the time that Reattach permits.
func TestReattachLimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, err := sandbox.NewClient(&sandbox.ClientOptions{
			Credentials: auth.Static(auth.Credentials{Token: "tok", TeamID: "team", ProjectID: "prj"}), BaseURL: "https://api.test",
			MaxRetries: -1, Reattach: &sandbox.ReattachOptions{Attempts: 1000, Limit: 30 * time.Second, Wait: time.Second},
			HTTPClient: &http.Client{Transport: canned.API(func(r *http.Request) (*http.Response, error) {
				switch {
				case testkit.IsRun(r):
					return canned.Response(200, "application/x-ndjson", strings.NewReader(canned.Begun)), nil
				case r.Method == http.MethodPost:
					return canned.JSON(200, canned.RunningSandbox), nil
				}
				return canned.JSON(502, ""), nil
			})},
		})
		require.NoError(t, err)
		sb, err := c.Create(t.Context(), nil)
		require.NoError(t, err)
		began := time.Now()
		_, err = sb.RunCommand(t.Context(), "x", nil, nil)
		var lost *sandbox.StreamError
		require.ErrorAs(t, err, &lost)
		took := time.Since(began)
		assert.True(t, 30*time.Second <= took && took < time.Minute, "%v", took) // the last pause may exceed the limit
	})
}

// TestClientOptionsOfARequest: each option has its effect on a request.
func TestClientOptionsOfARequest(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	var seen *http.Request
	events := &testkit.Events{}
	c, err := sandbox.NewClient(&sandbox.ClientOptions{
		Credentials: auth.Static(auth.Credentials{Token: "tok", TeamID: "team", ProjectID: "prj"}),
		BaseURL:     "https://api.test/base", UserAgent: "mine/1", Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Observer: events,
		HTTPClient: &http.Client{Transport: canned.API(func(r *http.Request) (*http.Response, error) {
			seen = r
			resp := canned.JSON(200, canned.RunningSandbox)
			resp.Header.Set("X-RateLimit-Limit", "10")
			resp.Header.Set("X-RateLimit-Remaining", "7")
			resp.Header.Set("X-RateLimit-Reset", "1900000000")
			return resp, nil
		})},
	})
	require.NoError(t, err)
	_, err = c.Get(t.Context(), "box", nil)
	require.NoError(t, err)
	assert.Equal(t, "https://api.test/base/v2/sandboxes/box", seen.URL.Scheme+"://"+seen.URL.Host+seen.URL.Path)
	assert.Equal(t, "Bearer tok", seen.Header.Get("Authorization"))
	assert.Equal(t, []string{"team", "prj"}, []string{seen.URL.Query().Get("teamId"), seen.URL.Query().Get("projectId")})
	assert.True(t, strings.HasPrefix(seen.UserAgent(), "mine/1 "), seen.UserAgent())
	assert.Contains(t, log.String(), "get sandbox")
	assert.Contains(t, log.String(), "rateRemaining=7 rateLimit=10")
	assert.Len(t, events.Ended("request"), 1)
	assert.Len(t, events.Ended(), 2, "one event for the request and one for the operation")
}

// TestWriterProgress: a FileWriter reports how much it has written.
func TestWriterProgress(t *testing.T) {
	t.Parallel()
	_, sb := testkit.LightStart(t, nil)
	var last sandbox.Progress
	f, err := sb.FS().Create(t.Context(), "f", &sandbox.WriterOptions{Progress: func(p sandbox.Progress) { last = p }})
	require.NoError(t, err)
	_, err = f.Write([]byte("12345"))
	require.NoError(t, errors.Join(err, f.Close()))
	assert.EqualValues(t, 5, last.Done)
}
