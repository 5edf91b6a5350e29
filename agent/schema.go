package agent

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path"
	"reflect"
	"slices"
	"strings"
)

// schema returns a JSON Schema with an argument for each field of a struct. The tag "json"
// gives the name, and makes the argument optional by omitempty or omitzero. The tag "is" is
// the description.
func schema(of reflect.Type) json.RawMessage {
	properties, required := map[string]any{}, []string{}
	for _, f := range arguments(of) {
		property := jsonType(f.typ)
		property["description"] = f.description
		properties[f.name] = property
		if !f.optional {
			required = append(required, f.name)
		}
	}
	s := map[string]any{"type": "object", "properties": properties, "additionalProperties": false}
	if len(required) > 0 {
		s["required"] = required
	}
	text, err := json.Marshal(s)
	if err != nil {
		panic(err) // maps and strings can be marshaled
	}
	return text
}

func jsonType(t reflect.Type) map[string]any {
	switch t.Kind() {
	case reflect.Bool:
		return map[string]any{"type": "boolean"}
	case reflect.Int:
		return map[string]any{"type": "integer"}
	case reflect.Float64:
		return map[string]any{"type": "number"}
	case reflect.Slice:
		return map[string]any{"type": "array", "items": jsonType(t.Elem())}
	case reflect.Map:
		return map[string]any{"type": "object", "additionalProperties": jsonType(t.Elem())}
	}
	return map[string]any{"type": "string"}
}

type argument struct {
	name, description string
	optional          bool
	typ               reflect.Type
}

func arguments(of reflect.Type) []argument {
	var list []argument
	for _, f := range reflect.VisibleFields(of) {
		if f.Anonymous {
			continue
		}
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		list = append(list, argument{name, f.Tag.Get("is"), options != "", f.Type})
	}
	return list
}

// parseObject parses a JSON object. An empty text and null are an empty object. It refuses a
// repeated name, because a policy or a person would see only one of the two values.
func parseObject(args json.RawMessage) (map[string]json.RawMessage, error) {
	given := map[string]json.RawMessage{}
	if len(bytes.TrimSpace(args)) == 0 {
		return given, nil
	}
	if err := json.Unmarshal(args, &given); err != nil {
		if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
			return nil, modelErrorf("The arguments are not a JSON object: %s, at byte %d.", oneLine(syntax.Error()), syntax.Offset)
		}
		return nil, modelErrorf("The arguments are not a JSON object.")
	}
	if given == nil { // null
		return map[string]json.RawMessage{}, nil
	}
	seen := map[json.Token]bool{}
	d := json.NewDecoder(bytes.NewReader(args)) // args is valid
	for _, _ = d.Token(); d.More(); {
		name, _ := d.Token()
		if seen[name] {
			return nil, modelErrorf("The argument %q is given twice.", oneLine(fmt.Sprint(name)))
		}
		seen[name] = true
		var value json.RawMessage
		_ = d.Decode(&value)
	}
	return given, nil
}

// decode parses the arguments of a call. Its errors tell the model which arguments the tool
// takes.
func decode(args json.RawMessage, into any) error {
	given, err := parseObject(args)
	if err != nil {
		return err
	}
	known := arguments(reflect.TypeOf(into).Elem())
	var names []string
	for _, a := range known {
		names = append(names, a.name)
	}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		if !slices.Contains(names, name) {
			return modelErrorf("There is no argument %q. This tool takes: %s.", oneLine(name), strings.Join(names, ", "))
		}
	}
	for _, a := range known {
		if string(given[a.name]) == "null" {
			delete(given, a.name)
		}
		if given[a.name] == nil && !a.optional {
			return modelErrorf("The argument %q is missing.", a.name)
		}
	}
	all, err := json.Marshal(given)
	if err != nil {
		return modelErrorf("The arguments are not a JSON object.")
	}
	if err := json.Unmarshal(all, into); err != nil {
		if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
			_, name, embedded := strings.Cut(wrong.Field, "Input.")
			if !embedded {
				name = wrong.Field
			}
			if key := wrongKey(given[name], wrong.Value); key != "" {
				return modelErrorf("The value %q of the argument %q is of the wrong type: %s where %s belongs.", oneLine(key), oneLine(name), wrong.Value, jsonType(wrong.Type)["type"])
			}
			return modelErrorf("The argument %q is of the wrong type: %s where %s belongs.", oneLine(name), wrong.Value, jsonType(wrong.Type)["type"])
		}
		return modelErrorf("The arguments can't be read.")
	}
	return nil
}

// wrongKey returns the key in an object whose value is not a string but has the wrong JSON
// type. It returns "" if there is none, or if the argument is not an object.
func wrongKey(argument json.RawMessage, wrong string) string {
	var values map[string]json.RawMessage
	if json.Unmarshal(argument, &values) != nil {
		return ""
	}
	for _, key := range slices.Sorted(maps.Keys(values)) {
		var text string
		if err, ok := errors.AsType[*json.UnmarshalTypeError](json.Unmarshal(values[key], &text)); ok && err.Value == wrong {
			return key
		}
	}
	return ""
}

// location is a path in the sandbox, given as an argument.
type location struct {
	given string // as the model wrote it
	abs   string // absolute and clean; empty until makeAbsolute
}

func (l *location) UnmarshalJSON(data []byte) error {
	*l = location{}
	return json.Unmarshal(data, &l.given)
}

func (l location) MarshalJSON() ([]byte, error) { return json.Marshal(cmp.Or(l.abs, l.given)) }

// setDefault sets a location that the model has omitted.
func (l *location) setDefault(value string) {
	l.given = cmp.Or(l.given, value)
}

// locations returns the locations among the arguments that the model has given.
func locations(in any) []*location {
	var list []*location
	v := reflect.ValueOf(in).Elem()
	for _, f := range reflect.VisibleFields(v.Type()) {
		if f.Type != reflect.TypeFor[location]() {
			continue
		}
		if l := v.FieldByIndex(f.Index).Addr().Interface().(*location); l.given != "" {
			list = append(list, l)
		}
	}
	return list
}

// hasRelativePath reports whether a location depends on the working directory.
func hasRelativePath(in any) bool {
	return slices.ContainsFunc(locations(in), func(l *location) bool { return !path.IsAbs(l.given) })
}

// makeAbsolute sets the absolute paths of locations that don't have one yet.
func makeAbsolute(in any, cwd string) {
	for _, l := range locations(in) {
		if l.abs != "" {
			continue
		}
		if l.abs = path.Clean(l.given); !path.IsAbs(l.abs) {
			l.abs = path.Join(cwd, l.abs)
		}
	}
}

// encode returns arguments in the canonical form that policies see. It adds the name of the
// sandbox unless that is empty.
func encode(in any, sandbox string) (json.RawMessage, error) {
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	if err := e.Encode(in); err != nil {
		return nil, err
	}
	all := bytes.TrimSpace(text.Bytes())
	if sandbox == "" {
		return all, nil
	}
	name, err := json.Marshal(sandbox)
	if err != nil {
		return nil, err
	}
	rest := all[1:]
	if len(rest) > 1 {
		rest = append([]byte(","), rest...)
	}
	return slices.Concat([]byte(`{"sandbox":`), name, rest), nil
}
