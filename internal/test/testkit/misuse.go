package testkit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"net/http"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/internal/test/canned"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Exports lists the exported functions and methods of a package.
type Exports struct {
	Dir string // the directory of the package's source
	// Types contains the types with methods, and Funcs the functions by their names. The
	// test fails if one is missing.
	Types []reflect.Type
	Funcs map[string]any
	// Except lists the calls that Misuse must not make, with the reasons. A key is "nil " or
	// "zero " and the beginning of a method's name, or "function " and the beginning of a
	// function's name.
	Except map[string]string
}

// Misuse calls all functions and methods with and without arguments, with a nil context and
// with one that has ended. It calls methods on a nil and on a zero receiver. No call may
// panic, hang or make a request. Errors have one line. They match [sandbox.ErrInvalid] if
// the receiver or the context is missing.
func (x Exports) Misuse(t *testing.T) {
	t.Helper()
	declared := x.complete(t)
	for _, typ := range x.Types {
		values := map[string]bool{} // methods with a value receiver, which panic on a nil pointer
		for m := range typ.Methods() {
			values[m.Name] = true
		}
		_, isError := reflect.TypeAssert[error](reflect.New(typ)) // as in the standard library, an error is never a nil pointer
		for what, of := range map[string]reflect.Value{"nil": reflect.Zero(reflect.PointerTo(typ)), "zero": reflect.New(typ)} {
			for m, method := range of.Methods() {
				switch {
				case what == "nil" && (isError || values[m.Name] || !declared[typ.Name()+"."+m.Name]), m.Name == "Format", strings.HasPrefix(m.Name, "Unmarshal"):
					continue // packages fmt and encoding never call these methods in such a way
				}
				if name := typ.Name() + "." + m.Name; !x.excepted(what + " " + name) {
					x.call(t, name, what, method)
				}
			}
		}
	}
	for name, fn := range x.Funcs {
		if !x.excepted("function " + name) {
			x.call(t, name, "function", reflect.ValueOf(fn))
		}
	}
}

func (x Exports) excepted(name string) bool {
	for prefix := range x.Except {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

// complete checks that the lists are complete, by reading the source. It returns the declared
// methods, without those of embedded types.
func (x Exports) complete(t *testing.T) (declared map[string]bool) {
	t.Helper()
	declared = map[string]bool{}
	types := map[string]bool{}
	for _, typ := range x.Types {
		types[typ.Name()] = true
	}
	files, err := filepath.Glob(filepath.Join(x.Dir, "*.go"))
	require.NoError(t, err)
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		for _, d := range parsed.Decls {
			f, ok := d.(*ast.FuncDecl)
			switch {
			case !ok || !f.Name.IsExported() || f.Type.TypeParams != nil:
			case f.Recv == nil:
				assert.Contains(t, x.Funcs, f.Name.Name, "add this function to Funcs of the Exports of %s", x.Dir)
			default:
				typ := f.Recv.List[0].Type
				if p, ok := typ.(*ast.StarExpr); ok {
					typ = p.X
				}
				if id, ok := typ.(*ast.Ident); ok && id.IsExported() {
					assert.True(t, types[id.Name], "add %s to Types, of %s", id.Name, x.Dir)
					declared[id.Name+"."+f.Name.Name] = true
				}
			}
		}
	}
	return declared
}

// call calls a method or function with each kind of context, with and without arguments. It
// also calls methods with a context that has not ended.
func (x Exports) call(t *testing.T, name, what string, fn reflect.Value) {
	t.Helper()
	ended, cancel := context.WithCancel(sandbox.ContextWithClient(t.Context(), canned.API(func(req *http.Request) (*http.Response, error) {
		t.Errorf("%s sent the request %s %s", name, req.Method, req.URL.Path)
		return nil, context.Canceled
	}).Client(t)))
	cancel()
	contexts := map[string]context.Context{"no context": nil}
	if fn.Type().NumIn() > 0 && fn.Type().In(0) == reflect.TypeFor[context.Context]() {
		contexts["an ended context"] = ended
		if what != "function" {
			contexts["a context"] = t.Context()
		}
	}
	for which, ctx := range contexts {
		for _, args := range []bool{false, true} {
			missing := what == "nil"
			var in []reflect.Value
			for i := range fn.Type().NumIn() {
				typ := fn.Type().In(i)
				switch {
				case fn.Type().IsVariadic() && i == fn.Type().NumIn()-1:
					continue
				case typ == reflect.TypeFor[context.Context]():
					in = append(in, reflect.ValueOf(&ctx).Elem())
					missing = missing || ctx == nil
				case args:
					in = append(in, canned.Argument(t, name[strings.Index(name, ".")+1:], i, typ))
				default:
					in = append(in, reflect.Zero(typ))
				}
			}
			about := fmt.Sprintf("%s (%s), %s, arguments: %v", name, what, which, args)
			var err error
			var panicked any
			synctest.Test(t, func(*testing.T) {
				defer func() { panicked = recover() }()
				err = outcome(fn.Call(in))
			})
			switch {
			case panicked != nil:
				t.Errorf("%s: panic: %v", about, panicked)
			case missing && (err != nil || fails(fn.Type())) && !errors.Is(err, sandbox.ErrInvalid):
				t.Errorf("%s: the error does not match ErrInvalid: %v", about, err)
			case strings.Contains(fmt.Sprint(err), "\n"):
				t.Errorf("%s: the error has more than one line: %v", about, err)
			}
		}
	}
}

// fails reports whether the last result of a function is an error.
func fails(typ reflect.Type) bool {
	return typ.NumOut() > 0 && typ.Out(typ.NumOut()-1) == reflect.TypeFor[error]()
}

// outcome returns the error of a call. If the call returned a value such as a Cmd, it returns
// the error of using this value.
func outcome(out []reflect.Value) error {
	if len(out) == 0 {
		return nil
	}
	last := out[len(out)-1]
	if err, ok := reflect.TypeAssert[error](last); ok {
		return err
	}
	if last.Kind() == reflect.Func && last.Type().CanSeq2() && !last.IsNil() {
		for _, v := range last.Seq2() {
			err, _ := reflect.TypeAssert[error](v)
			return err
		}
	}
	switch v := last.Interface().(type) {
	case *sandbox.Cmd:
		return cmp.Or(v.Run(), fmt.Errorf("the Cmd has run"))
	case io.WriteCloser:
		return v.Close()
	case fs.FS:
		_, err := fs.Stat(v, ".")
		return err
	}
	return nil
}
