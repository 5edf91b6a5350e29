package proxy

import (
	"cmp"
	"crypto"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/json"
)

const (
	issuerBase     = "https://oidc.vercel.com"
	clockTolerance = 60 * time.Second
	maxTokenSize   = 16 << 10
	maxIssuerSize  = 256
)

// claims are the claims that matter here. They have the type any, so that a claim
// of the wrong type counts as missing, but does not make the token unreadable. The
// decoder is go-jose's, because it distinguishes names by case and refuses
// duplicate names.
type claims struct {
	Issuer      any `json:"iss"`
	Audience    any `json:"aud"`
	Expiry      any `json:"exp"`
	NotBefore   any `json:"nbf"`
	IssuedAt    any `json:"iat"`
	TeamID      any `json:"team_id"`
	ProjectID   any `json:"project_id"`
	SandboxID   any `json:"sandbox_id"`
	SandboxName any `json:"sandbox_name"`
}

// unverifiedToken is a token that was parsed, but not verified.
type unverifiedToken struct {
	claims
	issuer    string
	keyID     string
	input     string // the signed text
	signature []byte
}

// header is the part of a token's header that matters. Keys in it, or addresses
// of keys, are ignored.
type header struct {
	Algorithm string          `json:"alg"`
	KeyID     string          `json:"kid"`
	Critical  json.RawMessage `json:"crit"`
}

// base64url has no padding, and one encoding for every value.
var base64url = base64.RawURLEncoding.Strict()

// parseToken parses a token in compact form. It does not use go-jose's parser, which
// takes a third of the time of a signature check, mostly for headers that must not
// be trusted anyway.
func parseToken(token string) (*unverifiedToken, error) {
	if len(token) > maxTokenSize {
		return nil, fmt.Errorf("%w: it is longer than %d bytes", ErrInvalidToken, maxTokenSize)
	}
	// The decoder ignores line breaks, so one token would have several
	// spellings.
	if strings.ContainsAny(token, "\r\n") {
		return nil, fmt.Errorf("%w: it has a line break", ErrInvalidToken)
	}
	input, signature := token, ""
	if i := strings.LastIndexByte(token, '.'); i >= 0 {
		input, signature = token[:i], token[i+1:]
	}
	first, second, ok := strings.Cut(input, ".")
	if !ok {
		return nil, fmt.Errorf("%w: it does not have three parts", ErrInvalidToken)
	}
	t := &unverifiedToken{input: input}
	var h header
	var err error
	if err := decodePart(first, &h); err != nil {
		return nil, fmt.Errorf("%w: its header is malformed", ErrInvalidToken)
	}
	if err := decodePart(second, &t.claims); err != nil {
		return nil, fmt.Errorf("%w: its claims are malformed", ErrInvalidToken)
	}
	if t.issuer, _ = t.Issuer.(string); t.issuer == "" {
		return nil, ErrMissingIssuer
	}
	if h.Algorithm != string(jose.RS256) {
		return nil, fmt.Errorf("%w: it is signed with the algorithm %q, not RS256", ErrInvalidToken, truncate(h.Algorithm))
	}
	if h.Critical != nil {
		return nil, fmt.Errorf("%w: it has critical headers (crit), which are not supported", ErrInvalidToken)
	}
	t.keyID = h.KeyID
	if t.signature, err = base64url.DecodeString(signature); err != nil {
		return nil, fmt.Errorf("%w: its signature is malformed", ErrInvalidToken)
	}
	return t, nil
}

// decodePart decodes one of the JSON parts of a token.
func decodePart(part string, into any) error {
	b, err := base64url.DecodeString(part)
	if err != nil {
		return err
	}
	return json.Unmarshal(b, into)
}

// checkIssuer accepts the issuers whose keys are trusted:
// https://oidc.vercel.com itself and plain paths below it. It compares text
// instead of parsing a URL, so that no other parser can read the issuer
// differently. It refuses a port, userinfo, a query, an escape, another spelling
// of the host, and a dot segment.
func checkIssuer(issuer string) error {
	rest, ok := strings.CutPrefix(issuer, issuerBase)
	if !ok || len(issuer) > maxIssuerSize {
		return fmt.Errorf("%w: %q is not %s or a path below it", ErrInvalidIssuer, truncate(issuer), issuerBase)
	}
	if rest == "" || rest == "/" {
		return nil
	}
	path, ok := strings.CutPrefix(strings.TrimSuffix(rest, "/"), "/")
	if !ok {
		return fmt.Errorf("%w: %q is not %s or a path below it", ErrInvalidIssuer, truncate(issuer), issuerBase)
	}
	for segment := range strings.SplitSeq(path, "/") {
		if segment == "" || segment == "." || segment == ".." || strings.ContainsFunc(segment, isReserved) {
			return fmt.Errorf("%w: %q is not %s or a path below it", ErrInvalidIssuer, truncate(issuer), issuerBase)
		}
	}
	return nil
}

// isReserved reports whether c is not one of RFC 3986's unreserved characters.
func isReserved(c rune) bool {
	return !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune("-._~", c))
}

// checkSignature verifies the signature over exactly the bytes received.
// parseToken has checked that the algorithm is RS256.
func (t *unverifiedToken) checkSignature(key *rsa.PublicKey) error {
	sum := sha256.Sum256([]byte(t.input))
	if err := rsa.VerifyPKCS1v15(key, crypto.SHA256, sum[:], t.signature); err != nil {
		return fmt.Errorf("%w: its signature does not match the issuer's key", ErrInvalidToken)
	}
	return nil
}

// checkTime checks exp, nbf and iat, and returns the expiry.
func (c *claims) checkTime(now time.Time) (time.Time, error) {
	expiry, ok := parseNumericDate(c.Expiry)
	if !ok {
		return time.Time{}, fmt.Errorf("%w: it has no time of expiry (exp)", ErrInvalidToken)
	}
	if !now.Before(expiry.Add(clockTolerance)) {
		return time.Time{}, fmt.Errorf("%w: it expired at %v, and this machine's clock shows %v", ErrInvalidToken, expiry, now.UTC().Round(time.Second))
	}
	if c.NotBefore != nil {
		start, ok := parseNumericDate(c.NotBefore)
		if !ok {
			return time.Time{}, fmt.Errorf("%w: its claim nbf is not a time", ErrInvalidToken)
		}
		if now.Add(clockTolerance).Before(start) {
			return time.Time{}, fmt.Errorf("%w: it is not valid before %v, and this machine's clock shows %v", ErrInvalidToken, start, now.UTC().Round(time.Second))
		}
	}
	if c.IssuedAt != nil {
		if _, ok := parseNumericDate(c.IssuedAt); !ok {
			return time.Time{}, fmt.Errorf("%w: its claim iat is not a time", ErrInvalidToken)
		}
	}
	return expiry, nil
}

// parseNumericDate converts a NumericDate between the years 1970 and 9999.
func parseNumericDate(v any) (time.Time, bool) {
	const latest = 253402300799
	f, ok := v.(float64)
	if !ok || !(f >= 0 && f <= latest) {
		return time.Time{}, false
	}
	return time.Unix(int64(f), 0).UTC(), true
}

// checkAudience accepts a token for one of the forward URLs, which have no
// trailing slash. A token contains the forward URL exactly as written in the
// policy, including its slash if there is one.
func (c *claims) checkAudience(accepted []string) error {
	accepts := func(aud string) bool { return slices.Contains(accepted, strings.TrimSuffix(aud, "/")) }
	switch aud := c.Audience.(type) {
	case string:
		if accepts(aud) {
			return nil
		}
	case []any:
		for _, a := range aud {
			if s, ok := a.(string); ok && accepts(s) {
				return nil
			}
		}
	}
	return fmt.Errorf("%w: it is for the forward URL %q, not for %q: list the policy's forward URL in Options.Audience", ErrInvalidToken, truncate(fmt.Sprint(c.Audience)), accepted)
}

// meta converts the claims to what handlers see.
func (c *claims) meta() (Meta, error) {
	text := func(v any) string { s, _ := v.(string); return s }
	m := Meta{
		TeamID:      text(c.TeamID),
		ProjectID:   text(c.ProjectID),
		SandboxID:   text(c.SandboxID),
		SandboxName: cmp.Or(text(c.SandboxName), text(c.SandboxID)),
	}
	if m.TeamID == "" || m.ProjectID == "" || m.SandboxID == "" {
		return Meta{}, ErrMissingClaims
	}
	return m, nil
}
