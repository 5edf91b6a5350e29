package proxy

import (
	"context"
	"crypto/rsa"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
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
)

// The fetches from issuers whose keys are not known are bounded: those can be made
// up by anybody. Each client has a small allowance of its own, so that one who
// uses up what is for all keeps out only those behind the same address.
var (
	forAll = rate{burst: 64, perSecond: 16}
	// forClients bounds what all clients together take from their own allowances,
	// of which a botnet has many.
	forClients = rate{burst: 256, perSecond: 64}
	forClient  = rate{burst: 8, perSecond: 1}
)

// maxClients bounds how many allowances are remembered.
const maxClients = 1024

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
// it asks at most one a second for each client's address after the first 8, and
// besides 16 a second for all together after the first 64. It remembers at most
// 256 issuers, among which those of tokens that were good are the last to be
// forgotten.
type Keys struct {
	// HTTPClient fetches the keys. When it is nil, a client is used that keeps
	// no connections. Its redirect policy and cookies are not used, its
	// transport and timeout are.
	HTTPClient *http.Client

	mu      sync.Mutex
	issuers map[string]*issuer
	// What is used up of forAll, forClients, and forClient by each.
	all, clients bucket
	client       map[netip.Addr]*bucket
}

// rate is how much may be used at once, and how much of it comes back.
type rate struct{ burst, perSecond float64 }

// bucket is what is used up of a rate.
type bucket struct {
	spent float64
	at    time.Time // as of when
}

// level returns what is used up now.
func (b *bucket) level(r rate, now time.Time) float64 {
	return max(0, b.spent-now.Sub(b.at).Seconds()*r.perSecond)
}

// has reports whether there is one left.
func (b *bucket) has(r rate, now time.Time) bool { return b.level(r, now) <= r.burst-1 }

// take uses one up.
func (b *bucket) take(r rate, now time.Time) { b.spent, b.at = b.level(r, now)+1, now }

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

// find returns the key for an issuer and key ID, fetching it when it has to, for
// a client at an address. The context bounds the waiting. A fetch that a request has begun is seen through
// when the request goes away, or else one could be kept from ever succeeding.
func (k *Keys) find(ctx context.Context, remote, name, keyID string) (*rsa.PublicKey, *issuer, error) {
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
	case k.mayFetch(e, remote, now):
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
func (k *Keys) mayFetch(e *issuer, remote string, now time.Time) bool {
	if e != nil && e.keys != nil {
		return now.Sub(e.tried) >= refetchPause
	}
	if e != nil && e.failures > 1 {
		pause := min(time.Second<<min(e.failures-2, 30), refetchPause)
		if now.Sub(e.tried) < pause {
			return false
		}
	}
	own := k.allowance(remote, now)
	switch {
	case own.has(forClient, now) && k.clients.has(forClients, now):
		own.take(forClient, now)
		k.clients.take(forClients, now)
	case k.all.has(forAll, now):
		k.all.take(forAll, now)
	default:
		return false
	}
	return true
}

// allowance returns what the client at an address has used up.
func (k *Keys) allowance(remote string, now time.Time) *bucket {
	var client netip.Addr // none: shared by all whose address is not understood
	if at, err := netip.ParseAddrPort(remote); err == nil {
		client = at.Addr().Unmap().WithZone("")
		if client.Is6() {
			// Whoever has an IPv6 address has a network of them.
			network, _ := client.Prefix(64)
			client = network.Addr()
		}
	}
	own := k.client[client]
	if own == nil {
		if len(k.client) >= maxClients {
			maps.DeleteFunc(k.client, func(_ netip.Addr, b *bucket) bool { return b.level(forClient, now) == 0 })
		}
		if len(k.client) >= maxClients {
			return &bucket{spent: forClient.burst, at: now}
		}
		if k.client == nil {
			k.client = make(map[netip.Addr]*bucket)
		}
		own = &bucket{}
		k.client[client] = own
	}
	return own
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
			break // all are being fetched: the rates bound these
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
