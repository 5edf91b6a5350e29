package promises_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/internal/test/canned"

	"github.com/stretchr/testify/assert"
)

// chosen has values for options whose type does not determine a valid one.
var chosen = map[string]any{
	"VCPUs": 2, "Ports": []int{3000}, "FailoverRegions": []string{"sfo1"}, "Source": sandbox.GitSource{URL: "https://example.com/a"},
	"Mounts": map[string]sandbox.Mount{"/mnt": {Drive: "d"}}, "NetworkPolicy": sandbox.DenyAll(), "Tags": map[string]string{"a": "b"},
	"Credentials": &sandbox.Credentials{}, "SnapshotExpiration": 48 * time.Hour, "Expiration": 48 * time.Hour,
	"KeepLastSnapshots": &sandbox.KeepLastSnapshots{Count: 1}, "Extra": map[string]any{"x": 1}, "Env": sandbox.Env{"A": "b"},
	"SortBy": sandbox.SortByName, "ListDrivesOptions.SortBy": sandbox.DrivesByName, "SortOrder": sandbox.Ascending, "Status": sandbox.StatusRunning,
	"Limit": 1, "MaxSizeBytes": int64(1 << 30), "Stdout": io.Discard, "Stderr": io.Discard, "Include": []string{"*"}, "Exclude": []string{"x"},
	"Args": []string{"a"}, "HTTPClient": &http.Client{Transport: canned.Silent{}}, "KeepAlive": &sandbox.KeepAliveOptions{},
	"WaitForPortOptions.Status": 200, "WaitForPortOptions.Path": "/x", "Log": regexp.MustCompile("x"),
	"EnsureOptions.Port": 1000, "Cwd": "/tmp",
}

// TestNoOptionIsRefused sets each field of the options of each method, one at a time. No
// method refuses one of its options.
func TestNoOptionIsRefused(t *testing.T) {
	t.Parallel()
	ended, cancel := context.WithCancel(t.Context())
	cancel() // a method checks its options before the first request, so no request is needed
	fields := 0
	for _, h := range handles(t, canned.Silent{}) {
		for m, method := range reflect.ValueOf(h).Methods() {
			for at := range method.Type().NumIn() {
				typ := method.Type().In(at)
				if typ.Kind() != reflect.Pointer || !strings.HasSuffix(typ.Elem().Name(), "Options") {
					continue
				}
				for field := range typ.Elem().Fields() {
					if !field.IsExported() {
						continue
					}
					fields++
					name := fmt.Sprintf("%s of %T.%s", field.Name, h, m.Name)
					in := []reflect.Value{reflect.ValueOf(ended)}
					for i := 1; i < method.Type().NumIn(); i++ {
						in = append(in, canned.Argument(t, m.Name, i, method.Type().In(i)))
					}
					in[at] = reflect.New(typ.Elem())
					in[at].Elem().FieldByIndex(field.Index).Set(valueOf(t, typ.Elem().Name(), field))
					if field.Name == "Args" { // valid only with a program
						in[at].Elem().FieldByName("Command").SetString("sh")
					}
					err, _ := reflect.TypeAssert[error](resultOf(method.Call(in)))
					assert.NotErrorIs(t, err, sandbox.ErrInvalid, name)
				}
			}
		}
	}
	assert.Greater(t, fields, 150)
}

// valueOf returns a value for a field of options.
func valueOf(t *testing.T, options string, field reflect.StructField) reflect.Value {
	t.Helper()
	if v, ok := chosen[options+"."+field.Name]; ok {
		return reflect.ValueOf(v)
	}
	if v, ok := chosen[field.Name]; ok {
		return reflect.ValueOf(v)
	}
	switch {
	case field.Type.Kind() == reflect.Func:
		return reflect.MakeFunc(field.Type, func([]reflect.Value) (out []reflect.Value) {
			for typ := range field.Type.Outs() {
				out = append(out, reflect.Zero(typ))
			}
			return out
		})
	case field.Type.Kind() == reflect.Bool:
		return reflect.ValueOf(true).Convert(field.Type)
	case field.Type.Kind() == reflect.Pointer:
		return reflect.New(field.Type.Elem())
	default:
		v := canned.Argument(t, "", 0, field.Type)
		assert.False(t, v.IsZero(), "add a value for %s.%s to chosen", options, field.Name)
		return v
	}
}
