package proxy

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/internal/test/needs"
)

var testKey = sync.OnceValue(func() *rsa.PrivateKey {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		panic(err)
	}
	return key
})

// jwks publishes the same key under several IDs.
func jwks(ids ...string) string {
	var set jose.JSONWebKeySet
	for _, id := range ids {
		set.Keys = append(set.Keys, jose.JSONWebKey{Key: testKey().Public(), KeyID: id, Algorithm: "RS256", Use: "sig"})
	}
	b, err := json.Marshal(set)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// keyServer is a transport that counts requests and responds with respond.
type keyServer struct {
	fetches atomic.Int64
	respond func(r *http.Request) (int, string, error)
}

func (s *keyServer) RoundTrip(r *http.Request) (*http.Response, error) {
	s.fetches.Add(1)
	status, body, err := s.respond(r)
	if err != nil {
		return nil, err
	}
	return &http.Response{StatusCode: status, Header: http.Header{"Location": {"https://evil.example/"}},
		Body: io.NopCloser(strings.NewReader(body)), Request: r}, nil
}

func publishing(ids ...string) *keyServer {
	return &keyServer{respond: func(*http.Request) (int, string, error) { return 200, jwks(ids...), nil }}
}

func (s *keyServer) keys() *Keys { return &Keys{HTTPClient: &http.Client{Transport: s}} }

const testIssuer = "https://oidc.vercel.com/team"

func (k *Keys) has(ctx context.Context, issuer, id string) error {
	_, _, err := k.find(ctx, "192.0.2.1:1", issuer, id)
	return err
}

func TestKeysAreFetchedFromTheIssuer(t *testing.T) {
	for issuer, want := range map[string]string{
		"https://oidc.vercel.com":       "https://oidc.vercel.com/.well-known/jwks",
		"https://oidc.vercel.com/":      "https://oidc.vercel.com/.well-known/jwks",
		"https://oidc.vercel.com/team":  "https://oidc.vercel.com/team/.well-known/jwks",
		"https://oidc.vercel.com/team/": "https://oidc.vercel.com/team/.well-known/jwks",
	} {
		s := publishing("a")
		s.respond = func(r *http.Request) (int, string, error) {
			assert.Equal(t, want, r.URL.String())
			_, ok := r.Context().Deadline()
			assert.True(t, ok)
			return 200, jwks("a"), nil
		}
		assert.NoError(t, s.keys().has(t.Context(), issuer, "a"))
		assert.EqualValues(t, 1, s.fetches.Load())
	}
}

func TestKeysRotate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := publishing("a")
		k := s.keys()
		require.NoError(t, k.has(t.Context(), testIssuer, "a"))
		s.respond = publishing("b").respond
		assert.ErrorIs(t, k.has(t.Context(), testIssuer, "b"), ErrInvalidToken, "the keys were fetched a moment ago")
		assert.EqualValues(t, 1, s.fetches.Load())
		time.Sleep(refetchPause)
		assert.NoError(t, k.has(t.Context(), testIssuer, "b"))
		assert.EqualValues(t, 2, s.fetches.Load())
		assert.ErrorIs(t, k.has(t.Context(), testIssuer, "a"), ErrInvalidToken, "a withdrawn key is refused")
	})
}

func TestKeysAreLookedAtAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := publishing("a")
		k := s.keys()
		require.NoError(t, k.has(t.Context(), testIssuer, "a"))
		time.Sleep(keysFresh - time.Second)
		require.NoError(t, k.has(t.Context(), testIssuer, "a"))
		assert.EqualValues(t, 1, s.fetches.Load())

		// After ten minutes the keys are fetched again, and a withdrawn key is refused.
		s.respond = publishing("b").respond
		time.Sleep(time.Second)
		assert.ErrorIs(t, k.has(t.Context(), testIssuer, "a"), ErrInvalidToken)
		assert.EqualValues(t, 2, s.fetches.Load())
	})
}

func TestKeysOutliveAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := publishing("a")
		k := s.keys()
		require.NoError(t, k.has(t.Context(), testIssuer, "a"))
		s.respond = func(*http.Request) (int, string, error) { return 503, "", nil }
		for range 59 {
			time.Sleep(time.Minute)
			require.NoError(t, k.has(t.Context(), testIssuer, "a"))
			require.NoError(t, k.has(t.Context(), testIssuer, "a"))
		}
		assert.EqualValues(t, 51, s.fetches.Load(), "one a minute, when the keys are ten minutes old")
		time.Sleep(time.Minute)
		assert.ErrorIs(t, k.has(t.Context(), testIssuer, "a"), ErrKeysUnavailable, "the keys are an hour old")
		s.respond = publishing("a").respond
		time.Sleep(time.Minute)
		assert.NoError(t, k.has(t.Context(), testIssuer, "a"))
	})
}

func TestKeysFailAndRecover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &keyServer{respond: func(*http.Request) (int, string, error) { return 500, "", nil }}
		k := s.keys()
		// After a single failure the next request tries again at once.
		assert.ErrorIs(t, k.has(t.Context(), testIssuer, "a"), ErrKeysUnavailable)
		assert.ErrorIs(t, k.has(t.Context(), testIssuer, "a"), ErrKeysUnavailable)
		assert.EqualValues(t, 2, s.fetches.Load())
		assert.ErrorIs(t, k.has(t.Context(), testIssuer, "a"), ErrKeysUnavailable)
		assert.EqualValues(t, 2, s.fetches.Load())
		// After that, the pauses grow up to a minute.
		start := time.Now()
		for time.Since(start) < time.Hour {
			time.Sleep(100 * time.Millisecond)
			assert.ErrorIs(t, k.has(t.Context(), testIssuer, "a"), ErrKeysUnavailable)
		}
		assert.InDelta(t, 2+6+59, s.fetches.Load(), 2)
		s.respond = publishing("a").respond
		time.Sleep(time.Minute)
		assert.NoError(t, k.has(t.Context(), testIssuer, "a"))
	})
}

func TestKeysJoinFetches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &keyServer{respond: func(*http.Request) (int, string, error) {
			time.Sleep(time.Second)
			return 200, jwks("a"), nil
		}}
		k := s.keys()
		var wg sync.WaitGroup
		for range 64 {
			wg.Go(func() { assert.NoError(t, k.has(t.Context(), testIssuer, "a")) })
		}
		wg.Wait()
		assert.EqualValues(t, 1, s.fetches.Load())
	})
}

// TestKeysFetchSurvivesItsRequest: a fetch continues if the request that started it is canceled.
func TestKeysFetchSurvivesItsRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &keyServer{respond: func(r *http.Request) (int, string, error) {
			select {
			case <-time.After(time.Second):
				return 200, jwks("a"), nil
			case <-r.Context().Done():
				return 0, "", r.Context().Err()
			}
		}}
		k := s.keys()
		gone, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { _ = k.has(gone, testIssuer, "a") })
		synctest.Wait()
		wg.Go(func() {
			assert.ErrorIs(t, k.has(gone, testIssuer, "a"), context.Canceled, "a canceled request stops waiting")
		})
		wg.Go(func() { assert.NoError(t, k.has(t.Context(), testIssuer, "a")) })
		synctest.Wait()
		cancel()
		wg.Wait()
		assert.EqualValues(t, 1, s.fetches.Load())
	})
}

func TestKeysGiveUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &keyServer{respond: func(r *http.Request) (int, string, error) {
			<-r.Context().Done()
			return 0, "", r.Context().Err()
		}}
		start := time.Now()
		assert.ErrorIs(t, s.keys().has(t.Context(), testIssuer, "a"), ErrKeysUnavailable)
		assert.Equal(t, keysTimeout, time.Since(start))
	})
}

func TestKeysSurviveAPanickingTransport(t *testing.T) {
	s := &keyServer{respond: func(*http.Request) (int, string, error) { panic("transport") }}
	k := s.keys()
	assert.Panics(t, func() { _ = k.has(t.Context(), testIssuer, "a") })
	s.respond = publishing("a").respond
	assert.NoError(t, k.has(t.Context(), testIssuer, "a"))
}

func TestKeysBadResponses(t *testing.T) {
	small, err := rsa.GenerateKey(rand.Reader, 1024)
	require.NoError(t, err)
	changedKeySet := func(change func(map[string]any)) string {
		var set map[string][]map[string]any
		require.NoError(t, json.Unmarshal([]byte(jwks("a")), &set))
		change(set["keys"][0])
		b, err := json.Marshal(set)
		require.NoError(t, err)
		return string(b)
	}
	smallSet, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: small.Public(), KeyID: "a"}}})
	require.NoError(t, err)
	private, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: testKey(), KeyID: "a"}}})
	require.NoError(t, err)
	many := make([]string, maxKeys+1)
	for i := range many {
		many[i] = fmt.Sprint(i)
	}
	for name, c := range map[string]struct{ resp, why string }{
		"nothing":           {"", "not a JSON key set"},
		"not JSON":          {"<html>", "not a JSON key set"},
		"null":              {"null", "none is an RSA key"},
		"a list":            {"[]", "not a JSON key set"},
		"no keys":           {`{"keys":[]}`, "none is an RSA key for RS256 signatures"},
		"keys of odd types": {`{"keys":[null,1,"x",[],{}]}`, "none is an RSA key"},
		"too large":         {jwks("a") + strings.Repeat(" ", maxKeysSize), "larger than 1048576 bytes"},
		"too many":          {jwks(many...), "there are 101 keys, more than 100"},
		"a small key":       {string(smallSet), "none is an RSA key"},
		"a private key":     {string(private), "none is an RSA key"},
		"for encryption":    {changedKeySet(func(k map[string]any) { k["use"] = "enc" }), "none is an RSA key"},
		"for RS512":         {changedKeySet(func(k map[string]any) { k["alg"] = "RS512" }), "none is an RSA key"},
		"for signing only":  {changedKeySet(func(k map[string]any) { k["key_ops"] = []string{"sign"} }), "none is an RSA key"},
		"an octet key":      {`{"keys":[{"kty":"oct","kid":"a","k":"AAAA"}]}`, "none is an RSA key"},
		"twice the same ID": {jwks("a", "a"), "publishes no usable key \"a\""},
		"no modulus":        {changedKeySet(func(k map[string]any) { delete(k, "n") }), "none is an RSA key"},
	} {
		t.Run(name, func(t *testing.T) {
			s := &keyServer{respond: func(*http.Request) (int, string, error) { return 200, c.resp, nil }}
			assert.ErrorContains(t, s.keys().has(t.Context(), testIssuer, "a"), c.why)
		})
	}
	for _, status := range []int{204, 301, 302, 307, 404, 500} {
		s := &keyServer{respond: func(*http.Request) (int, string, error) { return status, jwks("a"), nil }}
		assert.ErrorIs(t, s.keys().has(t.Context(), testIssuer, "a"), ErrKeysUnavailable)
		assert.EqualValues(t, 1, s.fetches.Load(), "redirects are not followed")
	}

	// Invalid keys are ignored if there is a valid one.
	mixed := strings.Replace(jwks("a"), `"keys":[`, `"keys":[null,{"kty":"XX"},{"kty":"RSA","kid":"b"},`, 1)
	s := &keyServer{respond: func(*http.Request) (int, string, error) { return 200, mixed, nil }}
	assert.NoError(t, s.keys().has(t.Context(), testIssuer, "a"))
}

// TestKeysFlood: unknown key IDs and issuers, for two minutes or with SANDBOX_SLOW=1 an hour. The
// number of fetches and the memory are bounded, and known sandboxes are accepted.
func TestKeysFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		perIssuer := make(map[string]int)
		s := &keyServer{respond: func(r *http.Request) (int, string, error) {
			mu.Lock()
			defer mu.Unlock()
			perIssuer[r.URL.Path]++
			if strings.HasPrefix(r.URL.Path, "/team/") {
				return 200, jwks("a"), nil
			}
			if strings.HasPrefix(r.URL.Path, "/real") { // another customer's issuer
				return 200, jwks("a"), nil
			}
			return 404, "", nil
		}}
		k := s.keys()
		_, e, err := k.find(t.Context(), "192.0.2.1:1", testIssuer, "a")
		require.NoError(t, err)
		e.proven.Store(true)

		seconds := 3600
		if !needs.Slow() {
			seconds = 120
		}
		for second := range seconds {
			for i := range 20 {
				id := fmt.Sprint(second, "-", i)
				assert.Error(t, k.has(t.Context(), testIssuer, id))
				assert.Error(t, k.has(t.Context(), "https://oidc.vercel.com/made-up-"+id, "a"))
				_ = k.has(t.Context(), "https://oidc.vercel.com/real-"+id, "a")
			}
			require.NoError(t, k.has(t.Context(), testIssuer, "a"), "a known sandbox")
			require.LessOrEqual(t, len(k.issuers), maxIssuers)
			time.Sleep(time.Second)
		}
		own := seconds/60 + 1
		assert.LessOrEqual(t, perIssuer["/team/.well-known/jwks"], own, "at most one a minute")
		assert.LessOrEqual(t, float64(s.fetches.Load()), float64(own)+totalRate.burst+clientRate.burst+float64(seconds)*(totalRate.perSecond+clientRate.perSecond))
		k.mu.Lock()
		assert.Contains(t, k.issuers, testIssuer, "an issuer of valid tokens is not evicted")
		k.mu.Unlock()
	})
}

// TestKeysColdStart: while an attacker floods the cache with invented issuers, the first request
// of a sandbox still gets its issuer's keys.
func TestKeysColdStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := publishing("a")
		k := s.keys()
		flood := func(remote string) {
			for i := range 400 {
				_, _, _ = k.find(t.Context(), remote, fmt.Sprint("https://oidc.vercel.com/made-up-", remote, time.Now().UnixNano(), i), "a")
			}
		}
		for i := range 20 {
			time.Sleep(time.Second)
			flood("203.0.113.9:1")
			flood("203.0.113.9:2") // another port is the same client
			flood(fmt.Sprintf("[2001:db8:1:2::%d]:1", i))
		}
		assert.Len(t, k.byClient, 2, "an IPv6 network is one client")
		_, _, err := k.find(t.Context(), "203.0.113.9:3", "https://oidc.vercel.com/behind-the-stranger", "a")
		assert.ErrorIs(t, err, ErrKeysUnavailable, "the attacker has used up the common limit")
		_, _, err = k.find(t.Context(), "198.51.100.7:1", testIssuer, "a")
		assert.NoError(t, err, "each client has its own allowance")

		// An attacker with many addresses is limited too.
		before := s.fetches.Load()
		for i := range 5000 {
			_, _, _ = k.find(t.Context(), fmt.Sprintf("100.%d.%d.1:1", i/250, i%250), fmt.Sprint("https://oidc.vercel.com/many-", i), "a")
		}
		assert.LessOrEqual(t, s.fetches.Load()-before, int64(clientsRate.burst+totalRate.burst))
		assert.LessOrEqual(t, len(k.byClient), maxClients)
	})
}

// testToken signs a token for the forward URL http://proxy.example.com/hook.
func testToken(keyID, issuer string) string {
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.RS256,
		Key: jose.JSONWebKey{Key: testKey(), KeyID: keyID}}, (&jose.SignerOptions{}).WithType("JWT"))
	if err != nil {
		panic(err)
	}
	jws, err := signer.Sign([]byte(`{"iss":"` + issuer + `","aud":"http://proxy.example.com/hook","exp":4102444800,` +
		`"iat":1700000000,"team_id":"team_p","project_id":"prj_p","sandbox_id":"sbx_p","sandbox_name":"name-p"}`))
	if err != nil {
		panic(err)
	}
	token, err := jws.CompactSerialize()
	if err != nil {
		panic(err)
	}
	return token
}
