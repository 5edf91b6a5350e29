package security_test

import (
	"bytes"
	"context"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"log/slog"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/internal/testkit"
	"github.com/go-vercel/sandbox/pool"
	"github.com/go-vercel/sandbox/terminal"
	"github.com/go-vercel/sandbox/tunnel"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
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

// TestNilHandles: the methods of a nil handle do not panic, make no request, and
// return an error in one line that says what is nil if they return one at all.
func TestNilHandles(t *testing.T) {
	t.Parallel()
	for name, typ := range publicTypes(t) {
		if typ.Kind() != reflect.Struct || name == ".Cmd" || !strings.HasPrefix(name, ".") {
			continue // a nil Cmd panics as that of os/exec, what tests use panics as httptest does
		}
		if _, isError := reflect.TypeAssert[error](reflect.New(typ)); isError {
			continue // as with those of the standard library, a nil one is not an error
		}
		values := map[string]bool{} // methods of the value, which Go itself calls through the pointer
		for m := range typ.Methods() {
			values[m.Name] = true
		}
		for m, method := range reflect.Zero(reflect.PointerTo(typ)).Methods() {
			if values[m.Name] || m.Name == "UnmarshalJSON" || m.Name == "Format" { // which packages encoding/json and fmt never call so
				continue
			}
			in := []reflect.Value{}
			for i := range method.Type().NumIn() {
				if method.Type().IsVariadic() && i == method.Type().NumIn()-1 {
					break
				}
				if method.Type().In(i) == reflect.TypeFor[context.Context]() {
					in = append(in, reflect.ValueOf(t.Context()))
				} else {
					in = append(in, testkit.Argument(t, m.Name, i, method.Type().In(i)))
				}
			}
			assert.NotPanics(t, func() {
				out := method.Call(in)
				if len(out) == 0 {
					return
				}
				last := out[len(out)-1]
				if last.Kind() == reflect.Func && last.Type().CanSeq2() {
					for _, err := range last.Seq2() {
						last = err
						break
					}
				}
				if err, ok := reflect.TypeAssert[error](last); ok {
					assert.ErrorIs(t, err, sandbox.ErrInvalid, "%s.%s", name, m.Name)
					assert.NotContains(t, err.Error(), "\n")
				}
			}, "%s.%s", name, m.Name)
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

// TestNilArguments: a function that takes a context, or a handle, refuses nil in
// one line and before it does anything, in every package. A function of these
// packages that has no row fails the test.
func TestNilArguments(t *testing.T) {
	t.Parallel()
	var none context.Context
	ctx, sb := t.Context(), &sandbox.Sandbox{}
	one := func(_ any, err error) error { return err }
	rows := map[string][]error{
		"Create":      {one(sandbox.Create(none, nil))},
		"Fork":        {one(sandbox.Fork(none, "a", nil))},
		"Get":         {one(sandbox.Get(none, "a", nil))},
		"GetOrCreate": {one(sandbox.GetOrCreate(none, "a", nil))},
		"List":        {one(sandbox.Collect(sandbox.List(none, nil)))},
		"pool.New":    {one(pool.New(none, &sandbox.Client{}, pool.Options{Name: "a", Size: 1}))},
		"tunnel.Dial": {one(tunnel.Dial(none, sb, 1)), one(tunnel.Dial(ctx, nil, 1)), one(tunnel.Dial(ctx, sb, 70000))},
		"tunnel.Forward": {
			tunnel.Forward(none, nil, sb, 1, nil), tunnel.Forward(ctx, nil, nil, 1, nil), tunnel.Forward(ctx, nil, sb, 1, nil),
			tunnel.Forward(ctx, nil, sb, 0, nil), tunnel.Forward(ctx, nil, sb, -5, nil),
		},
		"terminal.Run":      {one(terminal.Run(none, sb, nil, nil)), one(terminal.Run(ctx, nil, nil, nil))},
		"terminal.Attach":   {one(terminal.Attach(none, &sandbox.Shell{}, nil)), one(terminal.Attach(ctx, nil, nil))},
		"ContextWithClient": nil, // panics as context.WithValue does
	}
	for name, errs := range rows {
		for i, err := range errs {
			assert.ErrorIs(t, err, sandbox.ErrInvalid, "%s, %d", name, i)
			assert.NotContains(t, fmt.Sprint(err), "\n", name)
		}
	}
	for _, dir := range []string{".", "pool", "tunnel", "terminal"} {
		files, err := filepath.Glob(filepath.Join("../..", dir, "*.go"))
		require.NoError(t, err)
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
			require.NoError(t, err)
			for _, d := range parsed.Decls {
				f, ok := d.(*ast.FuncDecl)
				if !ok || f.Recv != nil || !f.Name.IsExported() || len(f.Type.Params.List) == 0 {
					continue
				}
				first, ok := f.Type.Params.List[0].Type.(*ast.SelectorExpr)
				if name := strings.TrimPrefix(dir+"."+f.Name.Name, ".."); ok && first.Sel.Name == "Context" {
					assert.Contains(t, rows, name, "it has no row")
				}
			}
		}
	}
	var p *pool.Pool
	assert.ErrorIs(t, p.Close(ctx), sandbox.ErrInvalid)
	assert.ErrorIs(t, p.Drain(ctx), sandbox.ErrInvalid)
	assert.ErrorIs(t, one(p.Take(ctx, "")), sandbox.ErrInvalid)
}
