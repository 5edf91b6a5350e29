package conformance

import (
	"cmp"
	"encoding/base64"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"
)

// CanonicalPath decodes every percent-encoded segment and encodes it again as
// JavaScript's encodeURIComponent does. A segment that cannot be decoded is
// left unchanged.
func CanonicalPath(raw string) string {
	segments := strings.Split(raw, "/")
	for i, s := range segments {
		if dec, err := url.PathUnescape(s); err == nil && utf8.ValidString(dec) {
			segments[i] = encodeURIComponent(dec)
		}
	}
	return strings.Join(segments, "/")
}

func encodeURIComponent(s string) string {
	const hexDigits = "0123456789ABCDEF"
	var b strings.Builder
	for i := range len(s) {
		c := s[i]
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', strings.IndexByte("-_.!~*'()", c) >= 0:
			b.WriteByte(c)
		default:
			b.WriteByte('%')
			b.WriteByte(hexDigits[c>>4])
			b.WriteByte(hexDigits[c&15])
		}
	}
	return b.String()
}

// formPairs decodes a query or a form as URLSearchParams does, sorted by key
// and then value. Whatever cannot be decoded is left unchanged.
func formPairs(raw string) []any {
	pairs := [][2]string{}
	for part := range strings.SplitSeq(raw, "&") {
		if part == "" {
			continue
		}
		k, v, _ := strings.Cut(part, "=")
		pairs = append(pairs, [2]string{formDecode(k), formDecode(v)})
	}
	slices.SortStableFunc(pairs, func(a, b [2]string) int {
		return cmp.Or(cmp.Compare(a[0], b[0]), cmp.Compare(a[1], b[1]))
	})
	out := make([]any, len(pairs))
	for i, p := range pairs {
		out[i] = []any{p[0], p[1]}
	}
	return out
}

func formDecode(s string) string {
	if dec, err := url.QueryUnescape(s); err == nil {
		return strings.ToValidUTF8(dec, "\ufffd")
	}
	return s
}

// decodeBody returns the body of a request in the form of the log.
func decodeBody(body []byte, contentType string) any {
	if len(body) == 0 {
		return nil
	}
	if strings.HasPrefix(contentType, "application/gzip") {
		entries, err := readTarGz(body)
		if err != nil {
			return object{"badGzip": err.Error()}
		}
		return object{"tar": entries}
	}
	if strings.HasPrefix(contentType, "application/x-www-form-urlencoded") {
		return object{"form": formPairs(string(body))}
	}
	if v, ok := decodeJSON(body); ok {
		return object{"json": v}
	}
	if utf8.Valid(body) {
		return object{"text": string(body)}
	}
	return object{"base64": base64.StdEncoding.EncodeToString(body)}
}
