package conformance

import (
	"maps"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"
)

// CanonicalPath decodes each percent-encoded segment of a path, and encodes it again like
// JavaScript's encodeURIComponent. It does not change a segment that it can't decode.
func CanonicalPath(raw string) string {
	segments := strings.Split(raw, "/")
	for i, s := range segments {
		if dec, err := url.PathUnescape(s); err == nil && utf8.ValidString(dec) {
			segments[i] = encodeURIComponent(dec)
		}
	}
	return strings.Join(segments, "/")
}

var asJavaScript = strings.NewReplacer("+", "%20", "%21", "!", "%27", "'", "%28", "(", "%29", ")", "%2A", "*")

func encodeURIComponent(s string) string { return asJavaScript.Replace(url.QueryEscape(s)) }

// formPairs decodes a query or a form, sorted by key and then value.
func formPairs(raw string) []any {
	form, _ := url.ParseQuery(raw) // skips pairs that it can't decode
	out := []any{}
	for _, k := range slices.Sorted(maps.Keys(form)) {
		for _, v := range slices.Sorted(slices.Values(form[k])) {
			out = append(out, []any{k, v})
		}
	}
	return out
}

// decodeBody returns the body of a request in the form of the log.
func decodeBody(body []byte, contentType string) any {
	if len(body) == 0 {
		return nil
	}
	if strings.HasPrefix(contentType, "application/gzip") {
		return object{"tar": readTarGz(body)}
	}
	if strings.HasPrefix(contentType, "application/x-www-form-urlencoded") {
		return object{"form": formPairs(string(body))}
	}
	if v, ok := decodeJSON(body); ok {
		return object{"json": v}
	}
	return object{"text": string(body)}
}
