package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"reflect"
	"strings"

	"github.com/go-vercel/sandbox/internal/wire"
)

// trimmed is an element of a listing without limits, which gives what it can.
type trimmed interface{ Trim() }

// listOf returns the field of out that the elements of a listing are for.
func (req *Request) listOf(out any) (field reflect.Value, name string, ok bool) {
	if len(req.Op.terms) == 0 || out == nil {
		return field, "", false
	}
	t := req.Op.terms[0]
	if t.kind != '[' || len(t.path) != 1 {
		return field, "", false
	}
	page := reflect.ValueOf(out).Elem()
	for i := range page.NumField() {
		if tag, _, _ := strings.Cut(page.Type().Field(i).Tag.Get("json"), ","); tag == t.path[0] {
			return page.Field(i), tag, true
		}
	}
	return field, "", false
}

// listing is a listing that is decoded as it arrives.
type listing struct {
	in    *wire.Reader
	dec   *json.Decoder
	name  string
	items reflect.Value
	kept  int64  // of the elements, in bytes
	rest  []byte // the response without all elements but the first
}

// readList decodes a listing element by element, and returns the response without
// all elements but the first.
func readList(in *wire.Reader, list reflect.Value, name string) (items reflect.Value, rest []byte, err error) {
	l := &listing{in: in, dec: json.NewDecoder(in), name: name, items: reflect.New(list.Type()).Elem(), rest: []byte{'{'}}
	l.items.Set(reflect.MakeSlice(list.Type(), 0, 0))
	if err := l.begins('{'); err != nil {
		return items, nil, err
	}
	for l.dec.More() {
		if err := l.field(); err != nil {
			return items, nil, err
		}
	}
	if _, err := l.dec.Token(); err != nil {
		return items, nil, err
	}
	if _, err := l.dec.Token(); err != io.EOF {
		return items, nil, errors.Join(errors.New("something follows its end"), err)
	}
	return l.items, append(bytes.TrimSuffix(l.rest, []byte(",")), '}'), nil
}

func (l *listing) begins(with json.Delim) error {
	if t, err := l.dec.Token(); err != nil || t != with {
		return errors.Join(errNotAList, err)
	}
	return nil
}

// add adds a field to the rest.
func (l *listing) add(key string, value ...[]byte) {
	quoted, _ := json.Marshal(key) // a string never fails
	l.rest = append(append(append(append(l.rest, quoted...), ':'), bytes.Join(value, nil)...), ',')
}

// field reads a field of the response.
func (l *listing) field() error {
	key, err := l.dec.Token()
	if err != nil {
		return err
	}
	if key != l.name {
		var value json.RawMessage
		if err := l.dec.Decode(&value); err != nil {
			return err
		}
		l.add(key.(string), value)
		return nil
	}
	if err := l.begins('['); err != nil {
		return err
	}
	for l.dec.More() {
		if err := l.element(); err != nil {
			return err
		}
	}
	if l.items.Len() == 0 {
		l.add(l.name, []byte("[]"))
	}
	_, err = l.dec.Token()
	return err
}

// element reads an element. One that is trimmed where there are too many bytes
// loses what may be long.
func (l *listing) element() (err error) {
	n := l.items.Len()
	if n == wire.MaxObjects {
		return wire.ErrTooMany
	}
	l.items.Grow(1)
	l.items.SetLen(n + 1)
	item := l.items.Index(n).Addr().Interface()
	l.in.Left = wire.MaxResponse
	before := l.dec.InputOffset()
	if n == 0 {
		var first json.RawMessage
		if err = l.dec.Decode(&first); err == nil {
			err = json.Unmarshal(first, item)
		}
		l.add(l.name, []byte("["), first, []byte("]"))
	} else {
		err = l.dec.Decode(item)
	}
	if err != nil {
		return err
	}
	size := l.dec.InputOffset() - before
	if l.kept += size; l.kept <= wire.MaxResponse {
		return nil
	}
	long, ok := item.(trimmed)
	if !ok {
		return wire.ErrTooLarge
	}
	l.kept -= size
	long.Trim()
	return nil
}

var errNotAList = errors.New("it is not a listing")
