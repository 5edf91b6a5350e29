package conformance

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"unicode/utf16"
)

// compactJSON writes a JSON value without spaces, in its own order of keys.
func compactJSON(raw json.RawMessage) []byte {
	var buf bytes.Buffer
	if err := json.Compact(&buf, raw); err != nil {
		return raw
	}
	return buf.Bytes()
}

// decodeJSON reads one JSON value and nothing after it. Numbers are float64,
// as in the recordings.
func decodeJSON(data []byte) (any, bool) {
	var v any
	if err := json.Unmarshal(data, &v); err != nil {
		return nil, false
	}
	return v, true
}

// plain turns any value into the types that JSON decodes to.
func plain(v any) any {
	data, err := marshal(v)
	if err != nil {
		return "not JSON: " + err.Error()
	}
	out, _ := decodeJSON(data)
	return out
}

// marshal writes JSON without escaping HTML.
func marshal(v any) ([]byte, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimRight(buf.Bytes(), "\n"), nil
}

// show writes a value for a message, cut at a readable length.
func show(v any) string {
	data, err := marshal(v)
	if err != nil {
		return err.Error()
	}
	const limit = 700
	if len(data) > limit {
		return string(data[:limit]) + " … (" + strconv.Itoa(len(data)) + " bytes)"
	}
	return string(data)
}

func sortedByValueLength(m map[string]string) []string {
	names := make([]string, 0, len(m))
	for n := range m {
		names = append(names, n)
	}
	slices.SortFunc(names, func(a, b string) int {
		if d := len(m[b]) - len(m[a]); d != 0 {
			return d
		}
		if a < b {
			return -1
		}
		return 1
	})
	return names
}

// long is the length, in UTF-16 units or bytes, beyond which results hold a
// digest in place of a text or of bytes.
const long = 1024

// normText gives a text as results hold it.
func normText(s string) any {
	if len(utf16.Encode([]rune(s))) > long {
		return map[string]any{"utf8Size": float64(len(s)), "sha256": sha256Hex([]byte(s))}
	}
	return s
}

// normDeep gives a decoded JSON value as results hold it: long texts become
// digests.
func normDeep(v any) any {
	switch v := v.(type) {
	case string:
		return normText(v)
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = normDeep(v[i])
		}
		return out
	case map[string]any:
		out := make(map[string]any, len(v))
		for k, x := range v {
			out[k] = normDeep(x)
		}
		return out
	default:
		return v
	}
}

// sortedKeys lists the keys of an object in their order.
func sortedKeys(m map[string]any) []string { return slices.Sorted(maps.Keys(m)) }
