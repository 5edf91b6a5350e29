// Package redact keeps secrets out of printed, logged and encoded values.
package redact

import (
	"fmt"
	"io"
	"maps"
	"net/url"
	"reflect"
	"slices"
	"strings"
)

// Types that contain secrets have a method Format that calls String or Struct. Package fmt
// calls Format for every verb, and also for a pointer inside another value. For such a
// pointer it calls neither String nor GoString, and would print the fields.

// String writes a type's description as fmt formats a string.
func String(f fmt.State, verb rune, description string) {
	if verb == 'q' || verb == 's' {
		_, _ = fmt.Fprintf(f, fmt.FormatString(f, verb), description)
		return
	}
	_, _ = io.WriteString(f, description)
}

// Struct writes the exported fields of a struct, or of a pointer to one, like fmt for %v,
// %+v or %#v. A tag limits what it shows of a field:
//
//	secret:"value"  only whether there is a value
//	secret:"names"  the keys of a map, or of a list of strings KEY=VALUE
//	secret:"url"    the URL without user, password and query
func Struct(f fmt.State, verb rune, v any) {
	rv := reflect.ValueOf(v)
	format, open := "%v", "{"
	switch {
	case verb == 'v' && f.Flag('#'):
		format, open = "%#v", rv.Type().String()+"{"
	case verb == 'v' && f.Flag('+'):
		format = "%+v"
	}
	if rv.Kind() == reflect.Pointer {
		if rv.IsNil() {
			_, _ = io.WriteString(f, "<nil>")
			return
		}
		rv = rv.Elem()
		open = "&" + strings.TrimPrefix(open, "*")
	}
	_, _ = io.WriteString(f, open)
	separator := " "
	if format == "%#v" {
		separator = ", "
	}
	first := true
	for i := range rv.NumField() {
		field := rv.Type().Field(i)
		if !field.IsExported() {
			continue
		}
		if !first {
			_, _ = io.WriteString(f, separator)
		}
		first = false
		if format != "%v" {
			_, _ = io.WriteString(f, field.Name+":")
		}
		_, _ = fmt.Fprintf(f, format, fieldValue(field.Tag.Get("secret"), rv.Field(i)))
	}
	_, _ = io.WriteString(f, "}")
}

// fieldValue returns the representation of a field's value.
func fieldValue(kind string, v reflect.Value) any {
	switch {
	case kind == "" && v.Kind() == reflect.Pointer && !v.IsNil() && v.Elem().Kind() != reflect.Struct:
		return v.Elem().Interface() // fmt would print the pointer
	case kind == "":
		return v.Interface()
	case kind == "url" && v.Kind() == reflect.String:
		return URL(v.String())
	case kind == "names" && v.Kind() == reflect.Map:
		names := make([]string, 0, v.Len())
		for _, k := range v.MapKeys() {
			names = append(names, k.String())
		}
		slices.Sort(names)
		return names
	case kind == "names" && v.Kind() == reflect.Slice:
		names := make(map[string]bool)
		for i := range v.Len() {
			name, _, _ := strings.Cut(v.Index(i).String(), "=")
			names[name] = true
		}
		return slices.Sorted(maps.Keys(names))
	case v.IsZero():
		return ""
	}
	return Mark
}

// URLSecrets returns the parts of an address that URL does not show and that may be
// secret.
func URLSecrets(address string) []string {
	u, err := url.Parse(address)
	if err != nil {
		return nil
	}
	secrets := []string{u.RawQuery}
	if password, ok := u.User.Password(); ok {
		secrets = append(secrets, password)
	} else if u.User != nil {
		secrets = append(secrets, u.User.Username()) // which may be a token without a password
	}
	return secrets
}

// URL returns an address without its user, password, query and fragment, any of
// which may be a token.
func URL(address string) string {
	if address == "" {
		return ""
	}
	// The short form that git and scp support, which is not a URL.
	if user, rest, ok := strings.Cut(address, "@"); ok && !strings.ContainsAny(user, "/?#") {
		if host, path, ok := strings.Cut(rest, ":"); ok && !strings.Contains(host, "/") && !strings.HasPrefix(path, "//") && !strings.Contains(user, ":") {
			path, _, _ = strings.Cut(path, "?")
			return Printable(Mark + "@" + host + ":" + path)
		}
	}
	u, err := url.Parse(address)
	if err != nil || u.Scheme == "" || u.Opaque != "" {
		return "(malformed address)"
	}
	clean := url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path, RawPath: u.RawPath}
	text := clean.String()
	if u.RawQuery != "" || u.Fragment != "" {
		text += "?" + Mark
	}
	return text
}

// Mark replaces a secret wherever a value is formatted.
const Mark = "REDACTED"

// Hidden holds a value with secrets. Package fmt prints unexported fields and, with some verbs,
// values behind pointers. Of a function it prints only the address.
type Hidden[T any] func() *T

// Hide returns a Hidden that holds value.
func Hide[T any](value *T) Hidden[T] { return func() *T { return value } }
