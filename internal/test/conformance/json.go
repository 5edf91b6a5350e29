package conformance

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"unicode/utf16"
)

// compactJSON returns a JSON value without white space. It keeps the order of the keys.
func compactJSON(raw json.RawMessage) []byte {
	var buf bytes.Buffer
	check(json.Compact(&buf, raw))
	return buf.Bytes()
}

// decodeJSON decodes a JSON value. It returns false if the data is invalid or contains more.
func decodeJSON(data []byte) (any, bool) {
	var v any
	if err := json.Unmarshal(data, &v); err != nil {
		return nil, false
	}
	return v, true
}

// plain converts a value to the types that decoding JSON returns, such as map[string]any.
func plain(v any) any { return decoded[any](marshal(v)) }

// marshal encodes JSON without escaping HTML.
func marshal(v any) []byte {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	check(enc.Encode(v))
	return bytes.TrimRight(buf.Bytes(), "\n")
}

// show formats a value for a message, with at most 700 characters.
func show(v any) string { return fmt.Sprintf("%.700s", marshal(v)) }

// long is the maximum length of a string or bytes in results, in UTF-16 units or bytes. Longer
// ones are represented by a digest.
const long = 1024

// normText returns a string in the form of results.
func normText(s string) any {
	if len(utf16.Encode([]rune(s))) > long {
		return object{"utf8Size": float64(len(s)), "sha256": sha256Hex([]byte(s))}
	}
	return s
}

// mapped returns a changed copy of decoded JSON. It calls change for each member of lists and
// objects, from the outside in, to replace or omit the member.
func mapped(v any, change func(key string, v any) (any, bool)) any {
	switch v := v.(type) {
	case []any:
		out := make([]any, 0, len(v))
		for _, x := range v {
			if x, ok := change("", x); ok {
				out = append(out, mapped(x, change))
			}
		}
		return out
	case object:
		out := object{}
		for _, k := range sortedKeys(v) {
			if x, ok := change(k, v[k]); ok {
				out[k] = mapped(x, change)
			}
		}
		return out
	}
	return v
}

// normDeep returns a decoded JSON value in the form of results, in which digests represent long
// strings.
func normDeep(v any) any {
	norm := func(_ string, v any) (any, bool) {
		if text, ok := v.(string); ok {
			return normText(text), true
		}
		return v, true
	}
	v, _ = norm("", v)
	return mapped(v, norm)
}

// sortedKeys returns the sorted keys of an object.
func sortedKeys(m object) []string { return slices.Sorted(maps.Keys(m)) }

// must returns v. It panics, which ends the scenario, if err is not nil. Use it only for errors
// that are faults of the suite or of the machine.
func must[T any](v T, err error) T {
	check(err)
	return v
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

// decoded decodes a part of a scenario as a T. It returns the zero value if the part is absent.
func decoded[T any](raw json.RawMessage) (v T) {
	if len(raw) > 0 {
		check(json.Unmarshal(raw, &v))
	}
	return v
}
