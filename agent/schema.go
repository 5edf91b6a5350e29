package agent

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strings"
)

// schema describes the arguments of a tool by the fields of a struct: "json" has
// the name, which is optional with omitempty, and "is" the description. A field
// without a description is accepted and not offered.
func schema(of reflect.Type) json.RawMessage {
	properties, required := map[string]any{}, []string{}
	for _, f := range arguments(of) {
		if f.about == "" {
			continue
		}
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
	case reflect.Pointer:
		return kindOf(t.Elem())
	case reflect.Bool:
		return map[string]any{"type": "boolean"}
	case reflect.Int:
		return map[string]any{"type": "integer"}
	case reflect.Float64:
		return map[string]any{"type": "number"}
	case reflect.Slice:
		if t == reflect.TypeFor[shellLine]() {
			return map[string]any{"type": "string"}
		}
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
		list = append(list, argument{name, f.Tag.Get("is"), options == "omitempty", f.Type})
	}
	return list
}

// decode reads the arguments of a call. Its errors are for the model, and say
// what the tool takes.
func decode(args json.RawMessage, into any) error {
	given := map[string]json.RawMessage{}
	if len(bytes.TrimSpace(args)) > 0 {
		if err := json.Unmarshal(args, &given); err != nil {
			return mistake("The arguments are not a JSON object.")
		}
	}
	rename(given)
	known := arguments(reflect.TypeOf(into).Elem())
	var names []string
	for _, a := range known {
		value, ok := given[a.name]
		if ok && string(value) == "null" {
			delete(given, a.name)
			ok = false
		}
		if a.about != "" {
			names = append(names, a.name)
		}
		if !ok && !a.optional {
			return mistake("The argument %q is missing.", a.name)
		}
	}
	for name := range given {
		if !slices.ContainsFunc(known, func(a argument) bool { return a.name == name }) {
			return mistake("There is no argument %q. This tool takes: %s.", line(name), strings.Join(names, ", "))
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
			return mistake("The argument %q is of the wrong type: %s.", line(name), wrong.Value)
		}
		return mistake("The arguments can't be read.")
	}
	return nil
}

// shellLine is a command line for the shell, or the words of a command, as some
// models send it.
type shellLine []string

func (s *shellLine) UnmarshalJSON(data []byte) error {
	var text string
	if json.Unmarshal(data, &text) == nil {
		*s = shellLine{"bash", "-c", text}
		return nil
	}
	return json.Unmarshal(data, (*[]string)(s))
}
