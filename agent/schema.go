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

// schema describes the arguments of a tool by the fields of a struct: "json" gives
// the name, which is optional with omitempty or omitzero, and "is" the description.
func schema(of reflect.Type) json.RawMessage {
	properties, required := map[string]any{}, []string{}
	for _, f := range arguments(of) {
		property := kindOf(f.typ)
		property["description"] = f.about
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
		panic(err) // of maps and strings
	}
	return text
}

func kindOf(t reflect.Type) map[string]any {
	switch t.Kind() {
	case reflect.Bool:
		return map[string]any{"type": "boolean"}
	case reflect.Int:
		return map[string]any{"type": "integer"}
	case reflect.Float64:
		return map[string]any{"type": "number"}
	case reflect.Slice:
		return map[string]any{"type": "array", "items": kindOf(t.Elem())}
	case reflect.Map:
		return map[string]any{"type": "object", "additionalProperties": kindOf(t.Elem())}
	}
	return map[string]any{"type": "string"}
}

type argument struct {
	name, about string
	optional    bool
	typ         reflect.Type
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

// object reads a JSON object, or nothing. It refuses a repeated name: a policy and a
// reader of the call would see only one of the two values.
func object(args json.RawMessage) (map[string]json.RawMessage, error) {
	given := map[string]json.RawMessage{}
	if len(bytes.TrimSpace(args)) == 0 {
		return given, nil
	}
	if err := json.Unmarshal(args, &given); err != nil {
		if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
			return nil, mistake("The arguments are not a JSON object: %s, at byte %d.", line(syntax.Error()), syntax.Offset)
		}
		return nil, mistake("The arguments are not a JSON object.")
	}
	if given == nil { // null
		return map[string]json.RawMessage{}, nil
	}
	seen := map[json.Token]bool{}
	d := json.NewDecoder(bytes.NewReader(args)) // of what is valid
	for _, _ = d.Token(); d.More(); {
		name, _ := d.Token()
		if seen[name] {
			return nil, mistake("The argument %q is given twice.", line(fmt.Sprint(name)))
		}
		seen[name] = true
		var value json.RawMessage
		_ = d.Decode(&value)
	}
	return given, nil
}

// decode reads the arguments of a call. Its errors are for the model, and say
// what the tool takes.
func decode(args json.RawMessage, into any) error {
	given, err := object(args)
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
			return mistake("There is no argument %q. This tool takes: %s.", line(name), strings.Join(names, ", "))
		}
	}
	for _, a := range known {
		if string(given[a.name]) == "null" {
			delete(given, a.name)
		}
		if given[a.name] == nil && !a.optional {
			return mistake("The argument %q is missing.", a.name)
		}
	}
	all, err := json.Marshal(given)
	if err != nil {
		return mistake("The arguments are not a JSON object.")
	}
	if err := json.Unmarshal(all, into); err != nil {
		if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
			_, name, embedded := strings.Cut(wrong.Field, "Input.")
			if !embedded {
				name = wrong.Field
			}
			if key := wrongValue(given[name], wrong.Value); key != "" {
				return mistake("The value %q of the argument %q is of the wrong type: %s where %s belongs.", line(key), line(name), wrong.Value, kindOf(wrong.Type)["type"])
			}
			return mistake("The argument %q is of the wrong type: %s where %s belongs.", line(name), wrong.Value, kindOf(wrong.Type)["type"])
		}
		return mistake("The arguments can't be read.")
	}
	return nil
}

// wrongValue returns the key of an object's value that has the type wrong, in the words of
// encoding/json. It returns "" if the argument is no object.
func wrongValue(argument json.RawMessage, wrong string) string {
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

// location is a path of the sandbox in the arguments of a call.
type location struct {
	said string // by the model
	at   string // absolute and clean, once that is known
}

func (l *location) UnmarshalJSON(data []byte) error {
	*l = location{}
	return json.Unmarshal(data, &l.said)
}

func (l location) MarshalJSON() ([]byte, error) { return json.Marshal(cmp.Or(l.at, l.said)) }

// or gives a location that the model has left out.
func (l *location) or(said string) {
	if l.said == "" {
		l.said = said
	}
}

// locations are those of the arguments that are given.
func locations(in any) []*location {
	var list []*location
	v := reflect.ValueOf(in).Elem()
	for _, f := range reflect.VisibleFields(v.Type()) {
		if f.Type != reflect.TypeFor[location]() {
			continue
		}
		if l := v.FieldByIndex(f.Index).Addr().Interface().(*location); l.said != "" {
			list = append(list, l)
		}
	}
	return list
}

// relative reports whether some location depends on the working directory.
func relative(in any) bool {
	return slices.ContainsFunc(locations(in), func(l *location) bool { return !path.IsAbs(l.said) })
}

// resolve makes the locations absolute that are not yet.
func resolve(in any, cwd string) {
	for _, l := range locations(in) {
		if l.at != "" {
			continue
		}
		if l.at = path.Clean(l.said); !path.IsAbs(l.at) {
			l.at = path.Join(cwd, l.at)
		}
	}
}

// encode returns arguments in the one spelling that they have for policies.
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
