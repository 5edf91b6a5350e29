package api

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/internal/test/needs"
)

// limitedAPI is an API with rate limits like those of the service: resets are in seconds, and
// only Date shows its clock.
type limitedAPI struct {
	create, others    int           // requests per window
	createWindow      time.Duration // starts with a request
	othersWindow      time.Duration
	delay             time.Duration // of a response, up to twice as long
	skew              time.Duration // of the service's clock
	trickle           bool          // creations are restored one by one, not all at the end of a window
	withoutRetryAfter bool

	mu      sync.Mutex
	rand    *rand.Rand
	windows map[string]*limitWindow
	sent    map[string]int
	refused map[string]int
	paths   []string
}

type limitWindow struct {
	ends time.Time
	used int
}

func newLimitedAPI() *limitedAPI {
	return &limitedAPI{
		create: 20, others: 1000, createWindow: 3 * time.Second, othersWindow: time.Minute, delay: 150 * time.Millisecond,
		rand: rand.New(rand.NewPCG(1, 2)), windows: map[string]*limitWindow{}, sent: map[string]int{}, refused: map[string]int{},
	}
}

func (l *limitedAPI) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Body != nil {
		_, _ = io.Copy(io.Discard, req.Body)
		req.Body.Close()
	}
	l.mu.Lock()
	way := time.Duration(l.rand.Int64N(int64(20 * time.Millisecond)))
	l.mu.Unlock()
	if !Sleep(req.Context(), way) {
		return nil, req.Context().Err()
	}
	resp, delay := l.count(req)
	if !Sleep(req.Context(), delay) {
		return nil, req.Context().Err()
	}
	return resp, nil
}

func (l *limitedAPI) count(req *http.Request) (*http.Response, time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	kind, limit, window := "others", l.others, l.othersWindow
	if req.Method == http.MethodPost && strings.HasSuffix(req.URL.Path, "/sandboxes") {
		kind, limit, window = "create", l.create, l.createWindow
	}
	now := time.Now().Add(l.skew)
	w := l.windows[kind]
	switch {
	case w == nil || !l.trickle && !now.Before(w.ends):
		w = &limitWindow{ends: now.Add(window)}
		l.windows[kind] = w
	case l.trickle && !now.Before(w.ends):
		back := int(now.Sub(w.ends)/window) + 1
		w.used = max(0, w.used-back)
		w.ends = w.ends.Add(time.Duration(back) * window)
	}
	l.sent[kind]++
	l.paths = append(l.paths, req.Method+" "+req.URL.Path)
	h := http.Header{
		"Date": {now.UTC().Format(http.TimeFormat)}, "X-Ratelimit-Limit": {fmt.Sprint(limit)},
		"X-Ratelimit-Remaining": {fmt.Sprint(max(0, limit-w.used-1))}, "X-Ratelimit-Reset": {fmt.Sprint(w.ends.Unix())},
	}
	status, body := 200, `{"sandbox":{"name":"`+req.URL.Path[strings.LastIndex(req.URL.Path, "/")+1:]+`"},"session":{"id":"s"}}`
	if strings.Contains(req.URL.Path, "/sessions/") {
		body = `{"session":{"id":"one"},"command":{"id":"two"}}`
	}
	if w.used >= limit {
		l.refused[kind]++
		if !l.withoutRetryAfter {
			h.Set("Retry-After", fmt.Sprint(int64((w.ends.Sub(now)+time.Second-1)/time.Second)))
		}
		status, body = 429, `{"error":{"code":"rate_limited","message":"Too many requests"}}`
	} else {
		w.used++
	}
	delay := l.delay + time.Duration(l.rand.Int64N(int64(l.delay)+1))
	if status == 429 {
		delay = 0
	}
	return &http.Response{StatusCode: status, ProtoMajor: 1, Header: h, Body: io.NopCloser(strings.NewReader(body))}, delay
}

// setMaxWait sets how long the client's requests wait for limits.
func setMaxWait(c *Client, longest time.Duration) {
	for _, g := range c.retrier.HTTPClient.Transport.(bufferingTransport).gates {
		g.maxWait = longest
	}
}

func creation() *Request { return &Request{Op: CreateSandbox, Body: struct{}{}} }

// TestManyAtOnce: under the service's limits all requests succeed in little more than the
// minimum time. Few are refused, even if several processes with independent clients send
// them.
func TestManyAtOnce(t *testing.T) {
	for _, tc := range []struct {
		name          string
		clients, each int
		request       func() *Request
		set           func(*limitedAPI)
		within        time.Duration
		refused       int // at most
	}{
		{"200 creations", 1, 200, creation, func(*limitedAPI) {}, 45 * time.Second, 40},
		{"by two processes", 2, 100, creation, func(*limitedAPI) {}, 45 * time.Second, 100},
		{"by four processes", 4, 50, creation, func(*limitedAPI) {}, 45 * time.Second, 150},
		{"80 creations by four processes", 4, 20, creation, func(l *limitedAPI) { l.delay = 50 * time.Millisecond }, 13500 * time.Millisecond, 80},
		{"without Retry-After", 2, 100, creation, func(l *limitedAPI) { l.withoutRetryAfter = true }, 45 * time.Second, 100},
		{"clocks an hour apart", 1, 200, creation, func(l *limitedAPI) { l.skew = -time.Hour }, 45 * time.Second, 40},
		// Responses arrive in the next window but report the previous one.
		{"slow creations", 1, 200, creation, func(l *limitedAPI) { l.delay = 5 * time.Second }, 75 * time.Second, 40},
		{"slow creations by two processes", 2, 100, creation, func(l *limitedAPI) { l.delay = 5 * time.Second }, 75 * time.Second, 60},
		// One request is restored each second.
		{"one at a time", 1, 200, creation, func(l *limitedAPI) { l.createWindow, l.trickle = time.Second, true }, 4 * time.Minute, 150},
		{"10,000 callers", 1, 10_000, reading, func(*limitedAPI) {}, 10 * time.Minute, 1000},
		{"10,000 callers in four processes", 4, 2500, reading, func(*limitedAPI) {}, 10 * time.Minute, 1000},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.clients*tc.each > 1000 {
				needs.Long(t, "10,000 callers")
			}
			synctest.Test(t, func(t *testing.T) {
				api := newLimitedAPI()
				tc.set(api)
				began := time.Now()
				var all sync.WaitGroup
				var mu sync.Mutex
				var failures []error
				for i := range tc.clients {
					time.Sleep(time.Duration(i) * 70 * time.Millisecond)
					c := testClient(api)
					setMaxWait(c, time.Hour)
					for range tc.each {
						all.Go(func() {
							if err := c.Do(t.Context(), tc.request(), nil); err != nil {
								mu.Lock()
								defer mu.Unlock()
								failures = append(failures, err)
							}
						})
					}
				}
				all.Wait()
				assert.Empty(t, failures)
				sent, refused := api.sent["create"]+api.sent["others"], api.refused["create"]+api.refused["others"]
				assert.LessOrEqual(t, refused, tc.refused, "refused of %d", sent)
				assert.LessOrEqual(t, time.Since(began), tc.within)
				t.Logf("%d requests, %d refused, %v", sent, refused, time.Since(began))
			})
		})
	}
}

func reading() *Request { return &Request{Op: GetSession, Path: []string{"one"}} }

// TestResponseOrder: in any order of responses, the latest reset counts, and for it the lowest
// number of remaining requests. Clients resume at different times after the reset.
func TestResponseOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		whens := map[time.Duration]bool{}
		for range 10 {
			g, now := newGates(time.Hour, &clock{})[creations], time.Now()
			for _, reported := range []struct{ remaining, reset, left int }{{18, 3, 18}, {19, 3, 18}, {10, 3, 10}, {4, 6, 4}, {0, 3, 4}, {5, 6, 4}} {
				g.update(rate(20, reported.remaining, time.Duration(reported.reset)*time.Second), false)
				assert.Equal(t, reported.left, g.remaining, "%+v", reported)
			}
			when := g.resetsAt.Sub(now)
			assert.GreaterOrEqual(t, when, 6*time.Second)
			whens[when] = true
		}
		assert.Greater(t, len(whens), 5)
	})
}

// TestLimitsApart: operations with different limits do not wait for each other; operations
// with the same limit do.
func TestLimitsApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newLimitedAPI()
		api.delay = 0
		c := testClient(api)
		for range 20 {
			require.NoError(t, c.Do(t.Context(), creation(), nil))
		}
		began := time.Now()
		require.NoError(t, c.Do(t.Context(), &Request{Op: GetSession, Path: []string{"one"}}, nil))
		assert.Less(t, time.Since(began), time.Second, "another limit")
		require.NoError(t, c.Do(t.Context(), &Request{Op: CreateSandbox, Body: struct{}{}}, nil))
		assert.Greater(t, time.Since(began), time.Second, "an operation with the same limit, which none of its responses had reported")
		assert.Zero(t, api.refused["create"])
	})
}

// TestForkBeforeCreations: a fork, whose limit is that of other requests, does not hide when
// the limit of creations is reset.
func TestForkBeforeCreations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newLimitedAPI()
		c := testClient(api)
		require.NoError(t, c.Do(t.Context(), &Request{Op: ForkSandbox, Path: []string{"one"}, Body: struct{}{}}, nil))
		began := time.Now()
		var all sync.WaitGroup
		for range 100 {
			all.Go(func() { assert.NoError(t, c.Do(t.Context(), creation(), nil)) })
		}
		all.Wait()
		assert.Equal(t, map[string]int{"create": 100 + api.refused["create"], "others": 1}, api.sent)
		assert.Less(t, time.Since(began), 25*time.Second)
	})
}

// TestInOrder: waiting requests are sent in order of arrival, but operations with First
// precede others.
func TestInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newLimitedAPI()
		api.others, api.othersWindow = 5, 3*time.Second
		c := testClient(api)
		get := func(op *Op, path ...string) { assert.NoError(t, c.Do(t.Context(), &Request{Op: op, Path: path}, nil)) }
		for range 5 {
			get(GetSession, "one")
		}
		var all sync.WaitGroup
		for i := range 9 {
			all.Go(func() { get(GetSandbox, fmt.Sprint("a", i)) })
			synctest.Wait()
		}
		all.Go(func() { get(GetCommand, "one", "two") })
		synctest.Wait()
		api.mu.Lock()
		assert.Len(t, api.paths, 5, "nothing is sent while the limit is spent")
		api.paths = nil
		api.delay = 0 // so that responses come in the order of the requests
		api.mu.Unlock()
		all.Wait()
		var order []string
		for _, p := range api.paths {
			order = append(order, p[strings.LastIndex(p, "/")+1:])
		}
		// Within a window, requests take different times.
		place := func(name string) int { return slices.Index(order, name) / 5 }
		assert.Zero(t, place("two"), "%v", order)
		for i := range 8 {
			assert.LessOrEqual(t, place(fmt.Sprint("a", i)), place(fmt.Sprint("a", i+1)), "%v", order)
		}
		assert.Zero(t, api.refused["others"])
	})
}

// TestWaitsAreBounded: the option and the context limit the wait. A wait that can't end before
// the deadline fails at once.
func TestWaitsAreBounded(t *testing.T) {
	spent := func(t *testing.T, api *limitedAPI, longest time.Duration) *Client {
		api.create, api.createWindow, api.delay = 1, 30*time.Second, 0
		c := testClient(api)
		setMaxWait(c, longest)
		require.NoError(t, c.Do(t.Context(), creation(), nil))
		return c
	}
	t.Run("option", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			api := newLimitedAPI()
			c := spent(t, api, 10*time.Second)
			began := time.Now()
			err := c.Do(t.Context(), creation(), nil)
			limited, ok := errors.AsType[*LimitError](err)
			require.True(t, ok, "%v", err)
			assert.Equal(t, 1, limited.Limit.Limit)
			assert.Zero(t, time.Since(began), "it is known that it would take longer")
			assert.Equal(t, 1, api.sent["create"])
			fail, _ := errors.AsType[*Failure](err)
			assert.False(t, fail.OutcomeUnknown(), "nothing was sent")
		})
	})
	t.Run("queue", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			api := newLimitedAPI()
			c := spent(t, api, 45*time.Second)
			began := time.Now()
			results := make(chan error, 3)
			for range 3 {
				go func() { results <- c.Do(t.Context(), creation(), nil) }()
			}
			require.NoError(t, <-results)
			require.Error(t, <-results)
			require.Error(t, <-results)
			assert.Equal(t, 45*time.Second, time.Since(began).Round(time.Second))
			assert.Equal(t, 2, api.sent["create"])
		})
	})
	t.Run("deadline", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			api := newLimitedAPI()
			c := spent(t, api, time.Minute)
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			began := time.Now()
			require.ErrorIs(t, c.Do(ctx, creation(), nil), context.DeadlineExceeded)
			assert.Zero(t, time.Since(began))
		})
	})
	t.Run("cancel", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			api := newLimitedAPI()
			c := spent(t, api, time.Minute)
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(5*time.Second, cancel)
			began := time.Now()
			err := c.Do(ctx, creation(), nil)
			require.ErrorIs(t, err, context.Canceled)
			fail, _ := errors.AsType[*Failure](err)
			assert.False(t, fail.OutcomeUnknown())
			assert.Equal(t, 5*time.Second, time.Since(began))
			assert.Equal(t, 1, api.sent["create"])
			assert.Empty(t, c.retrier.HTTPClient.Transport.(bufferingTransport).gates[creations].queues[1])
		})
	})
	t.Run("none", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			api := newLimitedAPI()
			c := spent(t, api, -1)
			began := time.Now()
			err := c.Do(t.Context(), creation(), nil)
			fail, ok := errors.AsType[*Failure](err)
			require.True(t, ok)
			assert.Equal(t, 429, fail.Status)
			assert.Less(t, time.Since(began), time.Second, "a Retry-After beyond 20 s is returned at once")
			assert.Equal(t, 2, api.sent["create"])
		})
	})
}

// TestOnlyTheAPITellsLimits: a gateway's response holds no request back, and a 429 without the
// API's code is not a refusal.
func TestOnlyTheAPITellsLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		c := testClient(roundTripper(func(*http.Request) (*http.Response, error) {
			n++
			resp := respond(429, "<html>slow down</html>")
			resp.Header.Set("X-Ratelimit-Limit", "5")
			resp.Header.Set("X-Ratelimit-Remaining", "0")
			resp.Header.Set("X-Ratelimit-Reset", fmt.Sprint(time.Now().Add(50*time.Second).Unix()))
			return resp, nil
		}))
		began := time.Now()
		err := c.Do(t.Context(), creation(), nil)
		fail, ok := errors.AsType[*Failure](err)
		require.True(t, ok)
		assert.True(t, fail.OutcomeUnknown())
		assert.Equal(t, 1, n, "a creation that may have taken effect is not retried")
		require.Error(t, c.Do(t.Context(), &Request{Op: GetSandbox, Path: []string{"a"}}, nil))
		assert.Equal(t, 4, n, "a read is retried")
		assert.Less(t, time.Since(began), 10*time.Second)
	})
}

// TestOddLimits: implausible limits hold no request back for long.
func TestOddLimits(t *testing.T) {
	for name, header := range map[string]func() http.Header{
		"none":                     func() http.Header { return http.Header{} },
		"without a limit":          func() http.Header { return http.Header{"X-Ratelimit-Remaining": {"0"}} },
		"without a reset":          func() http.Header { return http.Header{"X-Ratelimit-Remaining": {"0"}, "X-Ratelimit-Limit": {"1"}} },
		"a reset in ten years":     func() http.Header { return rate(1, 0, 10*365*24*time.Hour) },
		"a reset in the past":      func() http.Header { return rate(1, 0, -time.Minute) },
		"more left than the limit": func() http.Header { return rate(1, 1000, time.Minute) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := testClient(roundTripper(func(*http.Request) (*http.Response, error) {
					resp := respond(200, `{"session":{"id":"one"}}`)
					maps.Copy(resp.Header, header())
					return resp, nil
				}))
				began := time.Now()
				var all sync.WaitGroup
				for range 100 {
					all.Go(func() { assert.NoError(t, c.Do(t.Context(), &Request{Op: GetSession, Path: []string{"one"}}, nil)) })
				}
				all.Wait()
				assert.Zero(t, time.Since(began))
			})
		})
	}
}

// TestIncompleteLimits: a response without some of the headers neither changes the known limit
// nor prevents an update by a later one. The next request waits exactly until the reset.
func TestIncompleteLimits(t *testing.T) {
	for name, first := range map[string]func() http.Header{
		"without a date":              func() http.Header { return rate(9, 8, 5*time.Second) },
		"after one without any limit": func() http.Header { return http.Header{} },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				said := []http.Header{first(), rate(9, 0, 5*time.Second)}
				if said[0].Get("Date") != "" {
					delete(said[1], "Date")
				}
				c := testClient(roundTripper(func(*http.Request) (*http.Response, error) {
					resp := respond(200, `{"session":{"id":"one"}}`)
					if len(said) > 0 {
						resp.Header, said = said[0], said[1:]
					}
					return resp, nil
				}))
				setMaxWait(c, time.Minute)
				began := time.Now()
				for range 3 {
					require.NoError(t, c.Do(t.Context(), &Request{Op: GetSession, Path: []string{"one"}}, nil))
				}
				took := time.Since(began)
				assert.GreaterOrEqual(t, took, 5*time.Second)
				assert.Less(t, took, 8*time.Second)
			})
		})
	}
}

func rate(limit, remaining int, reset time.Duration) http.Header {
	return http.Header{
		"X-Ratelimit-Limit": {fmt.Sprint(limit)}, "X-Ratelimit-Remaining": {fmt.Sprint(remaining)},
		"X-Ratelimit-Reset": {fmt.Sprint(time.Now().Add(reset).Unix())}, "Date": {time.Now().UTC().Format(http.TimeFormat)},
	}
}

// TestLongRequestsHoldNothingUp: requests that wait for something, such as the end of a
// command, do not block others, neither before the first response nor after a window without
// responses.
func TestLongRequestsHoldNothingUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newLimitedAPI()
		hour := &Request{Op: GetCommand, Path: []string{"one", "two"}}
		c := testClient(roundTripper(func(req *http.Request) (*http.Response, error) {
			if strings.HasSuffix(req.URL.Path, "/cmd/two") && !Sleep(req.Context(), time.Hour) {
				return nil, req.Context().Err()
			}
			return api.RoundTrip(req)
		}))
		ctx, cancel := context.WithCancel(t.Context())
		var waits sync.WaitGroup
		for range initialInFlight + 5 {
			waits.Go(func() { _ = c.Do(ctx, &Request{Op: hour.Op, Path: hour.Path}, nil) })
		}
		synctest.Wait()
		began := time.Now()
		require.NoError(t, c.Do(t.Context(), &Request{Op: GetSession, Path: []string{"one"}}, nil))
		assert.Less(t, time.Since(began), 3*time.Second)
		time.Sleep(10 * time.Minute)
		for range 2 {
			waits.Go(func() { _ = c.Do(ctx, &Request{Op: hour.Op, Path: hour.Path}, nil) })
		}
		synctest.Wait()
		began = time.Now()
		require.NoError(t, c.Do(t.Context(), &Request{Op: GetSession, Path: []string{"one"}}, nil))
		assert.Less(t, time.Since(began), time.Second)
		cancel()
		waits.Wait()
	})
}

// TestRateWaitIsLogged: a wait is logged when it begins, with the place in the queue.
// Among requests that wait for the same reset, one record has info level.
func TestRateWaitIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newLimitedAPI()
		api.create, api.delay = 2, 0
		var log bytes.Buffer
		c := testClient(api)
		c.cfg.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() { assert.NoError(t, c.Do(t.Context(), creation(), nil)) })
			synctest.Wait()
			time.Sleep(100 * time.Millisecond)
		}
		lines := strings.Split(strings.TrimSpace(log.String()), "\n")
		all.Wait()
		require.Len(t, lines, 2)
		for i, level := range []string{"INFO", "DEBUG"} {
			assert.Contains(t, lines[i], fmt.Sprintf(`level=%s msg="sandbox request waits for the rate limit" operation="create sandbox" place=%d rateRemaining=0 rateLimit=2`, level, i+1))
		}
	})
}

// TestSeparateRetryCounts: refusals by a limit do not count as retries of failures.
func TestSeparateRetryCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		c := testClient(roundTripper(func(*http.Request) (*http.Response, error) {
			switch n++; n {
			case 1, 3, 5, 7:
				resp := respond(429, `{"error":{"code":"rate_limited"}}`)
				maps.Copy(resp.Header, rate(20, 0, 2*time.Second))
				return resp, nil
			case 2, 4:
				return respond(503, `{"error":{"code":"internal"}}`), nil
			case 6:
				return respond(429, `{"error":{"code":"rate_limited"}}`), nil
			}
			return respond(200, `{"session":{"id":"one"}}`), nil
		}))
		require.NoError(t, c.Do(t.Context(), &Request{Op: GetSession, Path: []string{"one"}}, nil))
		assert.Equal(t, 8, n)
	})
}

// TestRefusedBelowLimit: a refusal that reports remaining requests gives no reset to wait for,
// so it counts like a failure.
func TestRefusedBelowLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		c := testClient(roundTripper(func(*http.Request) (*http.Response, error) {
			n++
			resp := respond(429, `{"error":{"code":"rate_limited"}}`)
			maps.Copy(resp.Header, rate(20, 3, 2*time.Second))
			return resp, nil
		}))
		began := time.Now()
		require.Error(t, c.Do(t.Context(), &Request{Op: GetSession, Path: []string{"one"}}, nil))
		assert.Equal(t, 3, n)
		assert.GreaterOrEqual(t, time.Since(began), 400*time.Millisecond)
	})
}
