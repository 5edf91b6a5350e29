package sandbox

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"strings"
	"unicode/utf8"
)

// ParseNetworkPolicy reads a policy that a person or a program has written, as
// JSON in the form of the JavaScript SDK. It refuses what [Client.Create] would
// refuse, and also unknown and repeated fields and null, all of which
// json.Unmarshal accepts because it reads responses. The error matches
// [ErrInvalid] and names the line, column and field, but no header value.
func ParseNetworkPolicy(data []byte) (*NetworkPolicy, error) {
	r := &policyReader{data: data, dec: json.NewDecoder(bytes.NewReader(data)), places: map[string]int{}}
	r.dec.UseNumber()
	if err := r.whole(); err != nil {
		return nil, err
	}
	p := new(NetworkPolicy)
	if err := json.Unmarshal(data, p); err != nil {
		return nil, r.fail(0, "", "%v", err)
	}
	if _, err := p.toWire(); err != nil {
		return nil, r.translate(err)
	}
	return p, nil
}

// policyReader compares a text with the types of policies, and notes where each
// value is.
type policyReader struct {
	data   []byte
	dec    *json.Decoder
	places map[string]int
}

// policyObject is the form of a policy that is not a mode. Allow is a list of
// domains, or rules for each of them.
type policyObject struct {
	Allow   any            `json:"allow"`
	Subnets *policySubnets `json:"subnets"`
}

// whole compares the text, whose syntax it checks first.
func (r *policyReader) whole() error {
	for i := 0; i < len(r.data); {
		c, size := utf8.DecodeRune(r.data[i:])
		if c == utf8.RuneError && size == 1 {
			return r.fail(i, "", "is not UTF-8")
		}
		i += size
	}
	var raw json.RawMessage
	if err := json.Unmarshal(r.data, &raw); err != nil {
		at := len(r.data)
		if syntax, ok := errors.AsType[*json.SyntaxError](err); ok && syntax.Offset > 0 && int(syntax.Offset) <= len(r.data) {
			at = int(syntax.Offset) - 1
		}
		return r.fail(at, "", "%v", err)
	}
	switch r.data[r.next()] {
	case '"':
		return r.value("", reflect.TypeFor[string]())
	case '{':
		return r.value("", reflect.TypeFor[policyObject]())
	}
	return r.fail(r.next(), "", "expected %q, %q or an object", modeAllowAll, modeDenyAll)
}

// next is where the next name or value begins.
func (r *policyReader) next() int {
	at := int(r.dec.InputOffset())
	return at + len(r.data[at:]) - len(bytes.TrimLeft(r.data[at:], " \t\r\n,:"))
}

func (r *policyReader) value(path string, t reflect.Type) error {
	start := r.next()
	r.places[path] = start
	if t.Kind() == reflect.Interface {
		t = reflect.TypeFor[[]string]()
		if r.data[start] == '{' {
			t = reflect.TypeFor[map[string][]PolicyRule]()
		}
	}
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	token, err := r.dec.Token()
	if err != nil {
		return r.fail(start, path, "%v", err)
	}
	switch t.Kind() {
	case reflect.String:
		if _, ok := token.(string); ok {
			return nil
		}
		return r.fail(start, path, "expected a string")
	case reflect.Int:
		if n, ok := token.(json.Number); ok {
			if _, err := n.Int64(); err == nil {
				return nil
			}
		}
		return r.fail(start, path, "expected a whole number")
	case reflect.Slice:
		if token != json.Delim('[') {
			return r.fail(start, path, "expected a list")
		}
		for i := 0; r.dec.More(); i++ {
			if err := r.value(fmt.Sprintf("%s[%d]", path, i), t.Elem()); err != nil {
				return err
			}
		}
	default:
		if token != json.Delim('{') {
			return r.fail(start, path, "expected an object")
		}
		if err := r.fields(path, t); err != nil {
			return err
		}
	}
	_, err = r.dec.Token() // the end of the list or object
	return err
}

// fields compares the fields of an object with a struct or a map.
func (r *policyReader) fields(path string, t reflect.Type) error {
	seen := map[string]bool{}
	for r.dec.More() {
		start := r.next()
		token, err := r.dec.Token()
		if err != nil {
			return r.fail(start, path, "%v", err)
		}
		name := fmt.Sprint(token)
		if seen[name] {
			return r.fail(start, path, "%q comes twice", name)
		}
		seen[name] = true
		field, of := fmt.Sprintf("%s[%q]", path, name), t
		if t.Kind() == reflect.Map {
			of = t.Elem()
		} else {
			field = strings.TrimPrefix(path+"."+name, ".")
			known := false
			for f := range t.Fields() {
				if tag, _, _ := strings.Cut(f.Tag.Get("json"), ","); tag == name {
					of, known = f.Type, true
				}
			}
			if !known {
				return r.fail(start, path, "%q is not known", name)
			}
		}
		if err := r.value(field, of); err != nil {
			return err
		}
	}
	return nil
}

// fieldStart is where a field begins in the name that Go has for it; what is in
// quotes is a domain or a header.
var fieldStart = regexp.MustCompile(`"(?:[^"\\]|\\.)*"|\.[A-Z]`)

// translate gives an error about a field of Go the place and the name that the
// field has in the text.
func (r *policyReader) translate(err error) error {
	e, ok := errors.AsType[*invalidError](err)
	if !ok {
		return r.fail(0, "", "%v", err)
	}
	path := fieldStart.ReplaceAllStringFunc(strings.TrimPrefix(e.field, "NetworkPolicy"), func(s string) string {
		if s[0] == '.' {
			return strings.ToLower(s)
		}
		return s
	})
	path = strings.TrimPrefix(path, ".")
	if path == "mode" {
		path = "" // the policy is a string
	}
	for field, name := range map[string]string{"rules": "allow", "allowSubnets": "subnets.allow", "denySubnets": "subnets.deny"} {
		if rest, ok := strings.CutPrefix(path, field); ok {
			path = name + rest
			break
		}
	}
	at, found := r.places[path]
	for near := path; !found && near != ""; {
		near = near[:max(strings.LastIndexAny(near, ".["), 0)]
		at, found = r.places[near]
	}
	return r.fail(at, path, "%s", e.message)
}

// fail returns an error about a place of the text.
func (r *policyReader) fail(at int, path, format string, args ...any) error {
	before := r.data[:at]
	line := bytes.Count(before, []byte("\n")) + 1
	column := utf8.RuneCount(before[bytes.LastIndexByte(before, '\n')+1:]) + 1
	if path != "" {
		path += ": "
	}
	return invalid(fmt.Sprintf("line %d, column %d", line, column), "%s", path+fmt.Sprintf(format, args...))
}
