package sandbox

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
)

// checkExtra refuses parameters that can't be sent, and those that options have
// fields for, by which they are known.
func checkExtra(at string, extra map[string]any, known map[string]string) error {
	for _, name := range slices.Sorted(maps.Keys(extra)) {
		if field, ok := known[name]; ok {
			return invalid(at, "%q is set by %s", name, field)
		}
		if _, err := json.Marshal(extra[name]); err != nil {
			return invalid(at, "%q: %v", name, err)
		}
	}
	return nil
}

// private returns the parameters that are not part of the documented API, whose
// names begin with two underscores: as in the official client, the look for a
// sandbox has those of its creation.
func private(extra map[string]any) map[string]any {
	extra = maps.Clone(extra)
	maps.DeleteFunc(extra, func(name string, _ any) bool { return !strings.HasPrefix(name, "__") })
	return extra
}

// queryTexts returns the values of an extra parameter in a query: one for each
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
