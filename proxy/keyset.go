package proxy

import (
	"context"
	"crypto/rsa"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/json"
)

const (
	keysTimeout = 5 * time.Second
	maxKeysSize = 1 << 20
	maxKeys     = 100
	minKeyBits  = 2048
	maxKeyBits  = 8192
)

// keySet holds an issuer's keys by key ID. An ID that two keys have maps to
// nil: neither is used.
type keySet map[string]*rsa.PublicKey

// find returns the key with the given ID, or nil. A token without a key ID is
// verified with the only key, if there is just one.
func (s keySet) find(keyID string) *rsa.PublicKey {
	if keyID == "" && len(s) == 1 {
		for _, key := range s {
			return key
		}
	}
	return s[keyID]
}

// fetchKeys fetches the keys of an issuer that checkIssuer has accepted.
func fetchKeys(ctx context.Context, client *http.Client, issuer string) (keySet, error) {
	ctx, cancel := context.WithTimeout(ctx, keysTimeout)
	defer cancel()
	if client == nil {
		// Keys are fetched so rarely that keeping a connection is not
		// worthwhile.
		client = &http.Client{Transport: &http.Transport{
			Proxy:                  http.ProxyFromEnvironment,
			TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12},
			DisableKeepAlives:      true,
			ForceAttemptHTTP2:      true,
			MaxResponseHeaderBytes: 64 << 10,
		}}
	}
	client = &http.Client{
		Transport:     client.Transport,
		Timeout:       client.Timeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(issuer, "/")+"/.well-known/jwks", nil)
	if err != nil {
		return nil, fmt.Errorf("fetching keys: %w", err)
	}
	req.Header.Set("Accept", "application/json, application/jwk-set+json")
	resp, err := client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("fetching keys: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("fetching keys: %s returned status %d", req.URL, resp.StatusCode)
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxKeysSize+1))
	var keys keySet
	if err == nil && len(body) > maxKeysSize {
		err = fmt.Errorf("the response is larger than %d bytes", maxKeysSize)
	}
	if err == nil {
		keys, err = parseKeys(body)
	}
	if err != nil {
		return nil, fmt.Errorf("fetching keys from %s: %w", req.URL, err)
	}
	return keys, nil
}

// parseKeys reads a JWK set. Keys that are not usable here, or not understood,
// are ignored, so that an issuer may publish others.
func parseKeys(body []byte) (keySet, error) {
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(body, &set); err != nil {
		return nil, errors.New("the response is not a JSON key set")
	}
	if len(set.Keys) > maxKeys {
		return nil, fmt.Errorf("there are %d keys, more than %d", len(set.Keys), maxKeys)
	}
	keys := make(keySet)
	for _, raw := range set.Keys {
		id, key := parseKey(raw)
		if key == nil {
			continue
		}
		if _, twice := keys[id]; twice {
			key = nil
		}
		keys[id] = key
	}
	if len(keys) == 0 {
		return nil, errors.New("none is an RSA key for RS256 signatures")
	}
	return keys, nil
}

// parseKey returns a key for verifying RS256 signatures, or nil.
func parseKey(raw []byte) (id string, key *rsa.PublicKey) {
	var about struct {
		Type       string   `json:"kty"`
		Use        string   `json:"use"`
		Algorithm  string   `json:"alg"`
		Operations []string `json:"key_ops"`
	}
	if err := json.Unmarshal(raw, &about); err != nil || about.Type != "RSA" ||
		about.Use != "" && about.Use != "sig" ||
		about.Algorithm != "" && about.Algorithm != string(jose.RS256) ||
		about.Operations != nil && !slices.Contains(about.Operations, "verify") {
		return "", nil
	}
	var jwk jose.JSONWebKey
	if err := jwk.UnmarshalJSON(raw); err != nil {
		return "", nil
	}
	public, ok := jwk.Key.(*rsa.PublicKey)
	if !ok || public.N.BitLen() < minKeyBits || public.N.BitLen() > maxKeyBits {
		return "", nil
	}
	return jwk.KeyID, public
}
