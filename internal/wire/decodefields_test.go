package wire

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// fill sets a value, and everything in it, to something that is not zero and
// differs from what n makes of another.
func fill(t *testing.T, v reflect.Value, n int) {
	t.Helper()
	switch p := v.Addr().Interface().(type) {
	case *Time:
		p.Time = time.UnixMilli(1_700_000_000_000 + int64(n)).UTC()
		return
	case *Duration:
		*p = Duration(time.Duration(n+1) * time.Second)
		return
	case *json.RawMessage:
		*p = json.RawMessage(`{"path":{"exact":"/"}}`)
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(string(rune('a'+n%26)) + "é\n\"")
	case reflect.Int, reflect.Int64:
		v.SetInt(int64(n + 1))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(t, v.Elem(), n)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		fill(t, v.Index(0), n)
		fill(t, v.Index(1), n+1)
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		elem := reflect.New(v.Type().Elem()).Elem()
		fill(t, elem, n)
		v.SetMapIndex(reflect.ValueOf("key"), elem)
	case reflect.Struct:
		for f, field := range v.Fields() {
			if f.Tag.Get("json") != "-" {
				n++
				fill(t, field, n)
			}
		}
	default:
		t.Fatalf("a field of kind %s: say here how it is filled", v.Kind())
	}
}

// TestDecodeEveryField fills each field of what has a decoder of its own, alone
// and with all others, and compares with encoding/json: a field that the decoder
// does not know would be dropped.
func TestDecodeEveryField(t *testing.T) {
	type decoder interface{ Decode([]byte) bool }
	for _, c := range []struct {
		fresh func() decoder
		of    func(decoder) reflect.Value
	}{
		{func() decoder { return &SandboxesPage{Sandboxes: make([]Sandbox, 1)} }, func(d decoder) reflect.Value { return reflect.ValueOf(&d.(*SandboxesPage).Sandboxes[0]).Elem() }},
		{func() decoder { return &SandboxesPage{Sandboxes: []Sandbox{}} }, func(d decoder) reflect.Value { return reflect.ValueOf(&d.(*SandboxesPage).Pagination).Elem() }},
	} {
		check := func(field string, whole decoder) {
			t.Helper()
			data, err := json.Marshal(whole)
			require.NoError(t, err)
			got := reflect.New(reflect.TypeOf(whole).Elem()).Interface().(decoder)
			want := reflect.New(reflect.TypeOf(whole).Elem()).Interface()
			require.True(t, got.Decode(data), "%s: %s", field, data)
			require.NoError(t, json.Unmarshal(data, want))
			assert.Equal(t, want, got, "%s of %T", field, whole)
		}
		all := c.fresh()
		fill(t, c.of(all), 0)
		check("all fields", all)
		for i := range c.of(all).NumField() {
			one := c.fresh()
			fill(t, c.of(one).Field(i), i)
			check(c.of(one).Type().Field(i).Name, one)
		}
	}
}
