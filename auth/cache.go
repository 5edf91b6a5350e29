package auth

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/go-vercel/sandbox/internal/oidc"
	"github.com/go-vercel/sandbox/internal/redact"
)

const (
	// refreshAhead is how long before its expiry a token is replaced.
	refreshAhead = 5 * time.Minute
	// refreshTimeout limits a refresh, which does not use a caller's context.
	refreshTimeout = time.Minute
	// Pauses after failed refreshes double from the minimum to the maximum.
	minRefreshPause = time.Second
	maxRefreshPause = time.Minute
)

// errUnusableCredentials reports that a provider returned credentials that are expired or refused.
var errUnusableCredentials = errors.New("the credentials given have already expired, or are those that the API refused")

// Cache returns a provider that caches the credentials of p. It calls p only if
// there is no token, or the token expires within five minutes (by its own
// claims) or was rejected by the API. ttl is how long a token without an expiry
// is kept; zero means forever.
//
// p is called by one goroutine at a time, with a context of its own that ends
// after a minute, so that a caller that gives up does not affect the others.
// While a token is still valid, only the caller that started fetching its
// successor waits for it. After a failure p is not called for a second, after the
// next one for two, and so on up to a minute. Meanwhile callers get the token
// while it is valid, and otherwise the error.
//
// p does not see the values of a caller's context (such as [ContextWithToken]),
// which must not affect the credentials of others.
func Cache(p Provider, ttl time.Duration) Refresher {
	fetch := func(ctx context.Context, old cachedCredentials) (cachedCredentials, error) {
		var c Credentials
		var err error
		if r, ok := p.(Refresher); ok && old.Token != "" {
			c, err = r.Refresh(ctx, old.Credentials)
		} else {
			c, err = p.Credentials(ctx)
		}
		if err == nil {
			err = c.Validate()
		}
		if err != nil {
			return cachedCredentials{}, err
		}
		expiry, ok := oidc.Expiry(c.Token)
		g := newCachedCredentials(c, expiry)
		if !ok && ttl > 0 {
			g.refreshAt = time.Now().Add(ttl)
		}
		return g, nil
	}
	return &cachedProvider{redact.Hide(newCredentialCache(cachedCredentials{}, fetch, func(err error) bool {
		return !errors.Is(err, ErrNoCredentials)
	}))}
}

type cachedProvider struct {
	cache redact.Hidden[credentialCache]
}

func (p *cachedProvider) Credentials(ctx context.Context) (Credentials, error) {
	return p.cache().get(ctx, "")
}

func (p *cachedProvider) Refresh(ctx context.Context, stale Credentials) (Credentials, error) {
	return p.cache().get(ctx, stale.Token)
}

// cachedCredentials are credentials with their expiry.
type cachedCredentials struct {
	Credentials
	// expiry is zero when the token does not expire.
	expiry time.Time
	// refreshAt is when to replace the token; zero means never.
	refreshAt time.Time
}

func newCachedCredentials(c Credentials, expiry time.Time) cachedCredentials {
	g := cachedCredentials{Credentials: c, expiry: expiry}
	if !expiry.IsZero() {
		g.refreshAt = expiry.Add(-refreshAhead)
	}
	return g
}

func (g cachedCredentials) usable(now time.Time) bool {
	return g.Token != "" && !oidc.Expired(g.expiry, now)
}

func (g cachedCredentials) fresh(now time.Time) bool {
	return g.usable(now) && !oidc.Expired(g.refreshAt, now)
}

// credentialCache holds credentials and replaces them in time, with one fetch at a time.
type credentialCache struct {
	// fetch returns credentials to replace old, which is zero if there are none. It
	// may return credentials along with an error: they can be used for now, and
	// the error says why they were not replaced.
	fetch func(ctx context.Context, old cachedCredentials) (cachedCredentials, error)
	// pausesAfter reports whether fetch must not be called for a while after an
	// error.
	pausesAfter func(error) bool

	mu       sync.Mutex
	current  cachedCredentials
	flight   *inFlight // nil if nothing is being fetched
	failures int
	err      error     // of the last fetch, until pauseEnd
	pauseEnd time.Time // no fetch begins before this time
}

// inFlight is a fetch in progress.
type inFlight struct {
	done chan struct{}
	err  error // set before done is closed
}

func newCredentialCache(
	seed cachedCredentials, fetch func(context.Context, cachedCredentials) (cachedCredentials, error), pausesAfter func(error) bool,
) *credentialCache {
	return &credentialCache{current: seed, fetch: fetch, pausesAfter: pausesAfter}
}

// get returns credentials that have not expired. refused is a token that the API
// has rejected, which get does not return.
func (c *credentialCache) get(ctx context.Context, refused string) (Credentials, error) {
	var lastErr error
	// The first fetch may return a token that expires soon, such as a stored one.
	// The second fetch replaces it.
	for range 2 {
		got, flight, err := c.startFetch(refused)
		if flight == nil {
			return got, err
		}
		select {
		case <-flight.done:
			lastErr = flight.err
		case <-ctx.Done():
			return Credentials{}, ctx.Err()
		}
		if lastErr != nil {
			break
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.current.usable(time.Now()) && c.current.Token != refused {
		return c.current.Credentials, nil
	}
	return Credentials{}, cmp.Or(lastErr, errUnusableCredentials)
}

// startFetch returns credentials if they are available. Otherwise it returns the fetch in
// progress, or starts one.
func (c *credentialCache) startFetch(refused string) (Credentials, *inFlight, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	accepted := c.current.Token != refused
	usable := accepted && c.current.usable(now)
	switch {
	case accepted && c.current.fresh(now):
		return c.current.Credentials, nil, nil
	case usable && (c.flight != nil || now.Before(c.pauseEnd)):
		return c.current.Credentials, nil, nil
	case c.flight != nil:
		return Credentials{}, c.flight, nil
	case c.err != nil && now.Before(c.pauseEnd):
		return Credentials{}, nil, c.err
	}
	flight := &inFlight{done: make(chan struct{})}
	c.flight = flight
	go c.run(flight, c.current)
	return Credentials{}, flight, nil
}

// run fetches credentials. It does not use a caller's context: a caller that gives
// up must not affect the others, and a refresh token that was used must not be
// lost.
func (c *credentialCache) run(flight *inFlight, old cachedCredentials) {
	ctx, cancel := context.WithTimeout(context.Background(), refreshTimeout)
	defer cancel()
	got, err := c.fetch(ctx, old)

	c.mu.Lock()
	defer c.mu.Unlock()
	defer close(flight.done)
	now := time.Now()
	c.flight, flight.err = nil, err
	c.err, c.pauseEnd = nil, time.Time{}
	if got.Token != "" {
		c.current = got
	}
	switch {
	case err == nil:
		c.failures = 0
		if old.Token != "" && !got.fresh(now) && got.usable(now) {
			// Tokens that live for less than refreshAhead are never fresh.
			// Replace them halfway through their lives.
			c.pauseEnd = now.Add(got.expiry.Sub(now) / 2)
		}
	case c.pausesAfter(err):
		pause := min(minRefreshPause<<min(c.failures, 10), maxRefreshPause)
		c.failures++
		// Processes that fail at the same time should not retry at the same
		// time.
		c.err, c.pauseEnd = err, now.Add(pause/2+rand.N(pause/2))
	}
}
