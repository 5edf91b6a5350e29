package sandbox

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
)

// withPrivate adds the private parameters to a body.
func withPrivate(body any, private map[string]any) (any, error) {
	if len(private) == 0 {
		return body, nil
	}
	known, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	more, err := json.Marshal(private)
	if err != nil {
		return nil, invalid("Private", "%v", err)
	}
	if len(known) > len("{}") {
		known = append(known[:len(known)-1], ',')
	} else {
		known = known[:1]
	}
	return json.RawMessage(append(known, more[1:]...)), nil
}

// queryTexts returns the values of a private parameter in a query: one for each
// element of a list, none for null.
func queryTexts(v any) ([]string, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	var list []json.RawMessage
	if json.Unmarshal(data, &list) != nil {
		list = []json.RawMessage{data}
	}
	var texts []string
	for _, raw := range list {
		var text *string
		if json.Unmarshal(raw, &text) != nil {
			text = new(string(raw))
		}
		if text != nil {
			texts = append(texts, *text)
		}
	}
	return texts, nil
}

// checkPrivate refuses parameters that are part of the documented API.
func checkPrivate(private map[string]any) error {
	for _, k := range slices.Sorted(maps.Keys(private)) {
		if !strings.HasPrefix(k, "__") {
			return invalid("Private", "%q does not begin with __", k)
		}
	}
	return nil
}
