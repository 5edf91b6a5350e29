package proxy

import (
	"context"
	"crypto/rsa"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// keysFresh is how long keys are used without looking whether they are
	// still published: so long a withdrawn key is believed.
	keysFresh = 10 * time.Minute
	// keysUsable is how long keys are used when the issuer can't be reached.
	keysUsable = time.Hour
	// refetchPause is the least time between two fetches from an issuer whose
	// keys are known, and the longest between two attempts at one whose aren't.
	refetchPause = time.Minute

	// maxIssuers bounds the memory. A process that serves more teams than this
	// at a time fetches some keys more often.
	maxIssuers = 256
	// newIssuers and newIssuersPerSecond bound the fetches from issuers whose
	// keys are not known: those can be made up by anybody.
	newIssuers          = 32
	newIssuersPerSecond = 1
)

// Keys fetches and remembers the public keys that tokens are signed with. The
// zero value is ready to use. Handlers that are given the same Keys share what it
// has fetched. It is safe for concurrent use, and must not be copied.
//
// It fetches from https://oidc.vercel.com only, follows no redirect, gives up
// after 5 seconds and reads no more than 1 MiB. Fetches for the same issuer at
// the same time are one fetch. Keys are looked at again after 10 minutes, and
// used for an hour when that fails.
//
// A token with an unknown key ID makes it look again, at most once a minute for
// each issuer whose keys it has. When it has none, because fetching failed, it
// tries again at the next request, then after 1, 2, 4 seconds and so on up to
// a minute. Tokens can be made up with any issuer below oidc.vercel.com; of such
// it asks at most one a second after the first 32, and remembers at most 256,
// among which issuers of tokens that were good are the last to be forgotten.
type Keys struct {
	// HTTPClient fetches the keys. When it is nil, a client is used that keeps
	// no connections. Its redirect policy and cookies are not used, its
	// transport and timeout are.
	HTTPClient *http.Client

	mu      sync.Mutex
	issuers map[string]*issuer
	spent   float64   // how many of the newIssuers fetches are used up
	spentAt time.Time // as of when
}

// issuer is what is known about one issuer. Other than proven, its fields are
// guarded by the mutex of Keys.
type issuer struct {
	keys     keySet
	fetched  time.Time // when the keys were fetched
	tried    time.Time // when a fetch was last begun
	used     time.Time
	failures int // in a row
	err      error
	flight   chan struct{} // closed when the fetch under way ends; nil when there is none
	proven   atomic.Bool   // a token of it was good
}

// find returns the key for an issuer and key ID, fetching it when it has to. The
// context bounds the waiting. A fetch that a request has begun is seen through
// when the request goes away, or else one could be kept from ever succeeding.
func (k *Keys) find(ctx context.Context, name, keyID string) (*rsa.PublicKey, *issuer, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := time.Now()
	e := k.issuers[name]
	if e != nil {
		e.used = now
		if key := e.keys.find(keyID); key != nil && now.Sub(e.fetched) < keysFresh {
			return key, e, nil
		}
	}
	switch {
	case e != nil && e.flight != nil:
		flight := e.flight
		k.mu.Unlock()
		select {
		case <-flight:
		case <-ctx.Done():
		}
		k.mu.Lock()
		if err := ctx.Err(); err != nil {
			return nil, nil, fmt.Errorf("%w: %w", ErrKeysUnavailable, err)
		}
	case k.mayFetch(e, now):
		if e == nil {
			e = k.add(name, now)
		}
		k.refresh(ctx, name, e)
	case e == nil:
		return nil, nil, fmt.Errorf("%w: too many unknown issuers", ErrKeysUnavailable)
	}
	if e.keys == nil || time.Since(e.fetched) >= keysUsable {
		return nil, nil, fmt.Errorf("%w: %w", ErrKeysUnavailable, e.err)
	}
	key := e.keys.find(keyID)
	if key == nil {
		return nil, nil, fmt.Errorf("%w: unknown key %q", ErrInvalidToken, clip(keyID))
	}
	return key, e, nil
}

// mayFetch decides whether it is time for a fetch, and counts it when it is from
// an issuer whose keys are not known.
func (k *Keys) mayFetch(e *issuer, now time.Time) bool {
	if e != nil && e.keys != nil {
		return now.Sub(e.tried) >= refetchPause
	}
	if e != nil && e.failures > 1 {
		pause := min(time.Second<<min(e.failures-2, 30), refetchPause)
		if now.Sub(e.tried) < pause {
			return false
		}
	}
	k.spent = max(0, k.spent-now.Sub(k.spentAt).Seconds()*newIssuersPerSecond)
	k.spentAt = now
	if k.spent > newIssuers-1 {
		return false
	}
	k.spent++
	return true
}

// add makes room for an issuer, and adds it. What was not used for the longest
// time goes first, but issuers of good tokens, which nobody can make up, go last.
func (k *Keys) add(name string, now time.Time) *issuer {
	for len(k.issuers) >= maxIssuers {
		victim := ""
		var worst *issuer
		for n, e := range k.issuers {
			switch {
			case e.flight != nil:
			case worst == nil,
				worst.proven.Load() && !e.proven.Load(),
				worst.proven.Load() == e.proven.Load() && e.used.Before(worst.used):
				victim, worst = n, e
			}
		}
		if worst == nil {
			break // all are being fetched: newIssuers bounds these
		}
		delete(k.issuers, victim)
	}
	if k.issuers == nil {
		k.issuers = make(map[string]*issuer)
	}
	e := &issuer{used: now}
	k.issuers[name] = e
	return e
}

// refresh fetches the keys of an issuer, with the mutex released meanwhile.
func (k *Keys) refresh(ctx context.Context, name string, e *issuer) {
	done := make(chan struct{})
	e.flight = done
	e.tried = time.Now()
	var keys keySet
	err := errors.New("the transport panicked")
	defer func() {
		k.mu.Lock()
		e.flight = nil
		e.err = err
		if err == nil {
			e.keys, e.fetched, e.failures = keys, time.Now(), 0
		} else {
			e.failures++
		}
		close(done)
	}()
	k.mu.Unlock()
	keys, err = fetchKeys(context.WithoutCancel(ctx), k.HTTPClient, name)
}
