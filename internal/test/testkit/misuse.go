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

// Exports lists the functions and methods that a package exports.
type Exports struct {
	Dir string // the directory of its source
	// Types are the types with methods, and Funcs the functions by name. The test fails if
	// one is missing.
	Types []reflect.Type
	Funcs map[string]any
	// Except says what not to call, and why. A key is "nil " or "zero " and the start of a
	// method's name, or "function " and the start of a function's.
	Except map[string]string
}

// Misuse calls everything with a nil and a zero receiver, with and without arguments, and
// with a nil context and one that has ended. No call may panic, hang or make a request.
// Errors have one line, and match [sandbox.ErrInvalid] if the receiver or the context is
// missing.
func (x Exports) Misuse(t *testing.T) {
	t.Helper()
	declared := x.complete(t)
	for _, typ := range x.Types {
		values := map[string]bool{} // methods of the value, which Go calls through the pointer
		for m := range typ.Methods() {
			values[m.Name] = true
		}
		_, isError := reflect.TypeAssert[error](reflect.New(typ)) // like those of the standard library, errors are never nil pointers
		for what, of := range map[string]reflect.Value{"nil": reflect.Zero(reflect.PointerTo(typ)), "zero": reflect.New(typ)} {
			for m, method := range of.Methods() {
				switch {
				case what == "nil" && (isError || values[m.Name] || !declared[typ.Name()+"."+m.Name]), m.Name == "Format", strings.HasPrefix(m.Name, "Unmarshal"):
					continue // packages fmt and encoding never do this
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

// complete compares the lists with the source. It returns the methods that the source
// declares, without those of embedded types.
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
				assert.Contains(t, x.Funcs, f.Name.Name, "add it to Funcs, of %s", x.Dir)
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

// call calls a method or function with all contexts, and with and without arguments. A
// method also gets a context that has not ended.
func (x Exports) call(t *testing.T, name, what string, fn reflect.Value) {
	t.Helper()
	ended, cancel := context.WithCancel(sandbox.ContextWithClient(t.Context(), canned.API(func(req *http.Request) (*http.Response, error) {
		t.Errorf("%s sends %s %s", name, req.Method, req.URL.Path)
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
				t.Errorf("%s: %v is not ErrInvalid", about, err)
			case strings.Contains(fmt.Sprint(err), "\n"):
				t.Errorf("%s: more than a line: %v", about, err)
			}
		}
	}
}

// fails reports whether a function returns an error, or a value that does.
func fails(typ reflect.Type) bool {
	return typ.NumOut() > 0 && typ.Out(typ.NumOut()-1) == reflect.TypeFor[error]()
}

// outcome returns the error of a call, or of the value that it has returned.
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
		return cmp.Or(v.Run(), fmt.Errorf("it has run"))
	case io.WriteCloser:
		return v.Close()
	case fs.FS:
		_, err := fs.Stat(v, ".")
		return err
	}
	return nil
}
