package security_test

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/internal/testkit"

	"github.com/stretchr/testify/assert"
)

// TestNilAndZeroInLogs: values logged along with an error may be nil or empty.
func TestNilAndZeroInLogs(t *testing.T) {
	t.Parallel()
	for name, typ := range publicTypes(t) {
		values := map[string]any{"zero": reflect.New(typ).Interface()}
		if !typ.Implements(reflect.TypeFor[slog.LogValuer]()) {
			values["nil"] = reflect.Zero(reflect.PointerTo(typ)).Interface() // log/slog itself reports a nil pointer to a LogValuer
		}
		for what, v := range values {
			var b bytes.Buffer
			slog.New(slog.NewTextHandler(&b, nil)).Info("message", "value", v)
			slog.New(slog.NewJSONHandler(&b, nil)).Info("message", "value", v)
			assert.NotContains(t, strings.ToLower(b.String()), "panic", "%s %s", what, name)
			for _, verb := range []string{"%v", "%+v", "%#v", "%s"} {
				assert.NotContains(t, fmt.Sprintf(verb, v), "PANIC", "%s of %s %s", verb, what, name)
			}
			if err, ok := v.(error); ok && what == "zero" {
				assert.NotPanics(t, func() { _ = err.Error() }, name)
			}
		}
	}
}

// TestZeroHandles: the methods of a zero handle return an error, and do not
// panic.
func TestZeroHandles(t *testing.T) {
	t.Parallel()
	for name, typ := range publicTypes(t) {
		for m, method := range reflect.New(typ).Methods() {
			typ := method.Type()
			if typ.NumIn() < 1 || typ.In(0) != reflect.TypeFor[context.Context]() {
				continue
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			in := []reflect.Value{reflect.ValueOf(ctx)}
			for i := 1; i < typ.NumIn() && !(typ.IsVariadic() && i == typ.NumIn()-1); i++ {
				in = append(in, testkit.Argument(t, m.Name, i, typ.In(i)))
			}
			assert.NotPanics(t, func() {
				out := method.Call(in)
				if len(out) == 0 {
					return // it reports nothing
				}
				if last := out[len(out)-1]; last.Kind() == reflect.Func && last.Type().CanSeq2() {
					for range last.Seq2() {
						break
					}
				}
			}, "%s.%s", name, m.Name)
			cancel()
		}
	}
}

// TestZeroHandlesOtherwise: nor do the methods without a context.
func TestZeroHandlesOtherwise(t *testing.T) {
	t.Parallel()
	assert.NotPanics(t, func() {
		_, err := fs.ReadDir((&sandbox.FileSystem{}).IOFS(t.Context(), "/"), ".")
		assert.Error(t, err)
	})
	assert.NotPanics(t, func() { (&sandbox.Client{}).CloseIdleConnections() })
}
