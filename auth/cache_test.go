package auth_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/auth"
	"github.com/go-vercel/sandbox/internal/oidc"
	"github.com/go-vercel/sandbox/internal/oidc/oidctest"
)

// authority emulates the servers for a long time. Access tokens are valid for an hour, logins for
// eight hours, refresh tokens work once, and one of five requests fails.
type authority struct {
	t        *testing.T
	mu       sync.Mutex
	random   *rand.Rand
	active   int
	attempts int
	failedAt time.Time
	refresh  string // the refresh token that works
	logins   int
}

// checkRequest checks that requests for tokens are serialized and pause after a failure. It returns
// false if the request is to fail.
func (a *authority) checkRequest(failures bool) bool {
	a.mu.Lock()
	a.active++
	a.attempts++
	assert.Equal(a.t, 1, a.active, "one refresh at a time")
	if !a.failedAt.IsZero() {
		assert.GreaterOrEqual(a.t, time.Since(a.failedAt), 500*time.Millisecond, "there is a pause after a failure")
	}
	a.mu.Unlock()
	time.Sleep(200 * time.Millisecond)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.active--
	a.failedAt = time.Time{}
	if failures && a.random.IntN(5) == 0 {
		a.failedAt = time.Now()
		return false
	}
	return true
}

func (a *authority) play(v *oidctest.Vercel, exchange string) {
	v.Discover()
	v.Handle(exchange, func(oidctest.Request) oidctest.Response {
		if !a.checkRequest(true) {
			return oidctest.Response{Status: http.StatusServiceUnavailable, Body: "busy"}
		}
		return oidctest.Response{Body: map[string]string{"token": oidctest.Token("team_a", "prj_a", time.Hour)}}
	})
	v.Handle(oauthToken, func(r oidctest.Request) oidctest.Response {
		if !a.checkRequest(true) {
			return oidctest.Response{Err: errors.New("connection reset")}
		}
		a.mu.Lock()
		defer a.mu.Unlock()
		assert.Equal(a.t, a.refresh, r.Form.Get("refresh_token"), "a refresh token works once")
		a.logins++
		a.refresh = fmt.Sprintf("refresh_%d", a.logins)
		return oidctest.Response{Body: map[string]any{
			"access_token": fmt.Sprintf("login_%d", a.logins), "token_type": "Bearer", "expires_in": 8 * 3600, "refresh_token": a.refresh,
		}}
	})
}

func TestTokensForDays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const exchange = "POST api.vercel.com/v1/projects/prj_a/token"
		m, v, opts := setup(t)
		a := &authority{t: t, random: rand.New(rand.NewPCG(1, 2)), refresh: "refresh_0"}
		a.play(v, exchange)
		m.Set("VERCEL_OIDC_TOKEN", oidctest.Token("team_a", "prj_a", time.Hour))
		m.Write(m.LoginFile(), login("refreshToken", "refresh_0", "expiresAt", time.Now().Add(8*time.Hour).Unix()))
		p := auth.Default(opts)

		const days = 2
		end := time.Now().Add(days * 24 * time.Hour)
		var used, failed atomic.Int64
		var wg sync.WaitGroup
		for i := range 100 {
			wg.Go(func() {
				random := rand.New(rand.NewPCG(uint64(i), 3))
				for time.Now().Before(end) {
					c, err := p.Credentials(t.Context())
					if err != nil {
						failed.Add(1)
						time.Sleep(5 * time.Second)
						continue
					}
					used.Add(1)
					expiry, ok := oidc.Expiry(c.Token)
					assert.True(t, ok)
					assert.True(t, time.Now().Before(expiry), "no expired token is sent")
					// No caller works at night, and all start at once in the morning.
					if now := time.Now(); now.Hour() >= 20 {
						time.Sleep(time.Until(now.Truncate(24 * time.Hour).Add(32 * time.Hour)))
					}
					time.Sleep(time.Duration(random.Int64N(int64(20 * time.Minute))))
				}
			})
		}
		wg.Wait()
		assert.Greater(t, used.Load(), int64(2800*days))
		// Errors occur only in the morning, when the last token has expired and a refresh
		// fails, for all callers at once.
		assert.Less(t, failed.Load(), int64(100*days*5))
		assert.Less(t, a.attempts, 2*days*24, "about one refresh an hour, and some that failed")
		assert.Greater(t, a.logins, days)
		content := m.Read(m.LoginFile())
		assert.Equal(t, a.refresh, content["refreshToken"])
	})
}

func TestCache(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int64
		var fail atomic.Bool
		p := auth.Cache(auth.ProviderFunc(func(ctx context.Context) (auth.Credentials, error) {
			n := calls.Add(1)
			assert.Nil(t, ctx.Value(t), "the fetch does not get the values of a caller's context")
			time.Sleep(time.Second)
			if fail.Load() {
				return auth.Credentials{}, errors.New("vault is down")
			}
			return auth.Credentials{Token: fmt.Sprintf("t%d", n), TeamID: "x", ProjectID: "p"}, nil
		}), time.Hour)
		token := func() string {
			c, err := p.Credentials(t.Context())
			require.NoError(t, err)
			return c.Token
		}

		// A caller whose context ends makes no other call fail.
		ctx, cancel := context.WithTimeout(context.WithValue(t.Context(), t, 1), time.Millisecond)
		defer cancel()
		var wg sync.WaitGroup
		wg.Go(func() {
			_, err := p.Credentials(ctx)
			assert.ErrorIs(t, err, context.DeadlineExceeded)
		})
		for range 50 {
			wg.Go(func() { assert.Equal(t, "t1", token()) })
		}
		wg.Wait()
		assert.EqualValues(t, 1, calls.Load())

		time.Sleep(time.Hour)
		assert.Equal(t, "t2", token())
		time.Sleep(time.Hour)
		fail.Store(true)
		for range 10 {
			assert.Equal(t, "t2", token(), "the token is used until there is a newer one")
		}
		assert.EqualValues(t, 3, calls.Load())
		time.Sleep(time.Second)
		token()
		assert.EqualValues(t, 4, calls.Load())
		time.Sleep(time.Second) // the second pause is longer than the first
		fail.Store(false)
		time.Sleep(2 * time.Second)
		assert.Equal(t, "t5", token())

		got, err := p.Refresh(t.Context(), auth.Credentials{Token: "t5"})
		require.NoError(t, err)
		assert.Equal(t, "t6", got.Token)
		got, err = p.Refresh(t.Context(), auth.Credentials{Token: "t5"})
		require.NoError(t, err)
		assert.Equal(t, "t6", got.Token, "the token was refreshed before")
		fail.Store(true)
		for range 3 {
			_, err = p.Refresh(t.Context(), got)
			require.ErrorContains(t, err, "vault is down")
		}
		assert.EqualValues(t, 7, calls.Load())
	})
}

func TestCacheChecksWhatItGets(t *testing.T) {
	for name, c := range map[string]auth.Credentials{
		"missing ProjectID":    {Token: "t", TeamID: "x"},
		"have already expired": {Token: oidctest.Token("x", "p", -time.Second), TeamID: "x", ProjectID: "p"},
	} {
		_, err := auth.Cache(auth.ProviderFunc(func(context.Context) (auth.Credentials, error) {
			return c, nil
		}), 0).Credentials(t.Context())
		assert.ErrorContains(t, err, name)
	}
}

func TestShortLivedTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		p := auth.Cache(auth.ProviderFunc(func(context.Context) (auth.Credentials, error) {
			calls++
			return auth.Credentials{Token: oidctest.Token("x", "p", 2*time.Minute), TeamID: "x", ProjectID: "p"}, nil
		}), 0)
		for range 600 {
			_, err := p.Credentials(t.Context())
			require.NoError(t, err)
			time.Sleep(time.Second)
		}
		assert.Less(t, calls, 15, "there is not a fetch for each call")
	})
}
