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
	// keysFresh is how long keys are used without checking whether they are
	// still published: a withdrawn key is accepted for that long.
	keysFresh = 10 * time.Minute
	// keysUsable is how long keys are used if the issuer can't be reached.
	keysUsable = time.Hour
	// refetchPause is the minimum time between two fetches from an issuer with known keys.
	// For other issuers it is the maximum pause after a failed fetch.
	refetchPause = time.Minute

	// maxIssuers limits memory use. A process that serves more teams at the
	// same time fetches some keys more often.
	maxIssuers = 256
)

// Fetches from issuers whose keys are not known are rate limited, since anybody
// can invent issuers. Each client also has a small allowance of its own. A client
// that exhausts the common limit therefore affects only clients with the same
// address.
var (
	totalRate = rate{burst: 64, perSecond: 16}
	// clientsRate limits the sum of the clients' own allowances, since a botnet
	// has many clients.
	clientsRate = rate{burst: 256, perSecond: 64}
	clientRate  = rate{burst: 8, perSecond: 1}
)

// maxClients limits the number of clients whose allowance is remembered.
const maxClients = 1024

// Keys fetches and caches the public keys that tokens are signed with. The zero
// value is ready to use. Handlers with the same Keys share its cache. It is
// safe for concurrent use, and must not be copied after first use.
//
// It fetches from https://oidc.vercel.com only, follows no redirects, times out
// after 5 seconds and reads at most 1 MiB. Concurrent requests for the same
// issuer share one fetch. Keys are fetched again after 10 minutes, and used for
// an hour if that fails.
//
// A token with an unknown key ID triggers another fetch, at most once a minute
// per issuer whose keys are known. If the first fetch from an issuer fails, the
// next request retries it. Further retries wait 1, 2, 4 seconds and so on, up to
// a minute.
//
// A forged token can name any issuer below oidc.vercel.com. Fetches from issuers
// whose keys are not known are therefore limited. Each client's address may cause
// 8 at once, and then one per second. All clients together may cause another 64 at
// once, and then 16 per second. At most 256 issuers are remembered; those with
// valid tokens are forgotten last.
type Keys struct {
	// HTTPClient fetches the keys. Nil means a client that keeps no
	// connections. Its transport and timeout are used, its redirect policy and
	// cookies are not.
	HTTPClient *http.Client

	mu       sync.Mutex
	issuers  map[string]*issuerState
	total    allowance                 // the used part of totalRate
	clients  allowance                 // the used part of clientsRate
	byClient map[netip.Addr]*allowance // the used part of clientRate
}

// rate is the size of an allowance, and how fast it recovers.
type rate struct{ burst, perSecond float64 }

// allowance is the used part of a rate.
type allowance struct {
	spent float64
	at    time.Time // when spent was computed
}

// level returns the used part at a time.
func (b *allowance) level(r rate, now time.Time) float64 {
	return max(0, b.spent-now.Sub(b.at).Seconds()*r.perSecond)
}

// allows reports whether one more request is allowed.
func (b *allowance) allows(r rate, now time.Time) bool { return b.level(r, now) <= r.burst-1 }

// spend counts one request.
func (b *allowance) spend(r rate, now time.Time) { b.spent, b.at = b.level(r, now)+1, now }

// issuerState is the state of one issuer. The mutex of Keys guards its fields, except proven.
type issuerState struct {
	keys      keySet
	fetchedAt time.Time // when the keys were fetched
	triedAt   time.Time // start of the last fetch
	lastUsed  time.Time
	failures  int // consecutive
	err       error
	flight    chan struct{} // closed when the current fetch ends; nil if there is none
	proven    atomic.Bool   // it has issued a valid token
}

// find returns the key with the given issuer and ID, and fetches it if necessary.
// remote is the address of the client, whose allowance the fetch uses. The context
// limits the wait. If the request that started a fetch is canceled, the fetch
// continues: otherwise clients could cancel every fetch before it succeeds.
func (k *Keys) find(ctx context.Context, remote, name, keyID string) (*rsa.PublicKey, *issuerState, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := time.Now()
	e := k.issuers[name]
	if e != nil {
		e.lastUsed = now
		if key := e.keys.find(keyID); key != nil && now.Sub(e.fetchedAt) < keysFresh {
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
			e = k.addIssuer(name, now)
		}
		k.fetch(ctx, name, e)
	case e == nil:
		return nil, nil, fmt.Errorf("%w: requests named too many unknown issuers lately; list yours in Options.Issuers", ErrKeysUnavailable)
	}
	if e.keys == nil || time.Since(e.fetchedAt) >= keysUsable {
		return nil, nil, fmt.Errorf("%w: %w", ErrKeysUnavailable, e.err)
	}
	key := e.keys.find(keyID)
	if key == nil {
		return nil, nil, fmt.Errorf("%w: its issuer publishes no usable key %q", ErrInvalidToken, truncate(keyID))
	}
	return key, e, nil
}

// mayFetch reports whether a fetch is allowed now, and counts it if the
// issuer's keys are not known.
func (k *Keys) mayFetch(e *issuerState, remote string, now time.Time) bool {
	if e != nil && e.keys != nil {
		return now.Sub(e.triedAt) >= refetchPause
	}
	if e != nil && e.failures > 1 {
		pause := min(time.Second<<min(e.failures-2, 30), refetchPause)
		if now.Sub(e.triedAt) < pause {
			return false
		}
	}
	own := k.clientAllowance(remote, now)
	switch {
	case own.allows(clientRate, now) && k.clients.allows(clientsRate, now):
		own.spend(clientRate, now)
		k.clients.spend(clientsRate, now)
	case k.total.allows(totalRate, now):
		k.total.spend(totalRate, now)
	default:
		return false
	}
	return true
}

// clientAllowance returns how much the client at an address has used up.
func (k *Keys) clientAllowance(remote string, now time.Time) *allowance {
	var client netip.Addr // zero for all clients without a valid address
	if at, err := netip.ParseAddrPort(remote); err == nil {
		client = at.Addr().Unmap().WithZone("")
		if client.Is6() {
			// A client usually has a whole network of IPv6 addresses.
			network, _ := client.Prefix(64)
			client = network.Addr()
		}
	}
	own := k.byClient[client]
	if own == nil {
		if len(k.byClient) >= maxClients {
			maps.DeleteFunc(k.byClient, func(_ netip.Addr, b *allowance) bool { return b.level(clientRate, now) == 0 })
		}
		if len(k.byClient) >= maxClients {
			return &allowance{spent: clientRate.burst, at: now} // there are too many clients: allow this one nothing
		}
		if k.byClient == nil {
			k.byClient = make(map[netip.Addr]*allowance)
		}
		own = &allowance{}
		k.byClient[client] = own
	}
	return own
}

// addIssuer adds an issuer. To make room, it removes the least recently used one.
// It removes an issuer of valid tokens only if there is no other, because valid
// tokens can't be forged.
func (k *Keys) addIssuer(name string, now time.Time) *issuerState {
	for len(k.issuers) >= maxIssuers {
		victim := ""
		var worst *issuerState
		for n, e := range k.issuers {
			switch {
			case e.flight != nil:
			case worst == nil,
				worst.proven.Load() && !e.proven.Load(),
				worst.proven.Load() == e.proven.Load() && e.lastUsed.Before(worst.lastUsed):
				victim, worst = n, e
			}
		}
		if worst == nil {
			break // there is a fetch from each issuer; the rates limit the number of fetches
		}
		delete(k.issuers, victim)
	}
	if k.issuers == nil {
		k.issuers = make(map[string]*issuerState)
	}
	e := &issuerState{lastUsed: now}
	k.issuers[name] = e
	return e
}

// fetch fetches the keys of an issuer. It releases the mutex while it does.
func (k *Keys) fetch(ctx context.Context, name string, e *issuerState) {
	done := make(chan struct{})
	e.flight = done
	e.triedAt = time.Now()
	var keys keySet
	err := errors.New("the transport panicked")
	defer func() {
		k.mu.Lock()
		e.flight = nil
		e.err = err
		if err == nil {
			e.keys, e.fetchedAt, e.failures = keys, time.Now(), 0
		} else {
			e.failures++
		}
		close(done)
	}()
	k.mu.Unlock()
	keys, err = fetchKeys(context.WithoutCancel(ctx), k.HTTPClient, name)
}
