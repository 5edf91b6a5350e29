// Package printing tests that values of a module's public types do not show secrets, in
// whatever way a program prints them.
package printing

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox"
)

// Mark is the text that the tests put into each field that may contain a secret.
const Mark = "PLANTED-SECRET"

const project = "github.com/go-vercel/sandbox"

// module is a module of the project.
type module struct {
	path     string
	packages map[string]string // the folders of the public packages, by import path
}

// ours reports whether this test checks the types of a package. It also checks the types of
// the project's other modules, because fields may have these types.
func (m *module) ours(pkg string) bool {
	return m.packages[pkg] != "" || strings.HasPrefix(pkg+"/", project+"/") && !strings.Contains(pkg+"/", "/internal/")
}

// find returns the module in a folder, with the packages that users can import.
func find(t testing.TB, dir string) *module {
	text, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	require.NoError(t, err)
	name, _, _ := strings.Cut(strings.TrimPrefix(string(text), "module "), "\n")
	m := &module{name, map[string]string{}}
	require.NoError(t, fs.WalkDir(os.DirFS(dir), ".", func(name string, d fs.DirEntry, err error) error {
		switch base := path.Base(name); {
		case err != nil:
			return err
		case d.IsDir() && name != "." && (base == "internal" || base == "testdata" || base == "cmd" || base == "examples" || base == "docs" || strings.HasPrefix(base, ".")):
			return fs.SkipDir
		case d.IsDir():
			if _, err := os.Stat(filepath.Join(dir, name, "go.mod")); err == nil && name != "." {
				return fs.SkipDir
			}
		case strings.HasSuffix(base, ".go") && !strings.HasSuffix(base, "_test.go"):
			m.packages[path.Join(m.path, path.Dir(name))] = filepath.Join(dir, path.Dir(name))
		}
		return nil
	}))
	return m
}

// Module is a module whose exported types the tests print.
type Module struct {
	Dir string
	// Roots are the types that can't be reached through a field or method of another type.
	// The test fails if one is missing.
	Roots []reflect.Type
	// Open are types with fields that are named like secrets, but may be printed.
	Open []reflect.Type
	// Whole is set if the JSON of a value must contain all of its fields.
	Whole bool
}

// Types returns the exported types of all packages that users can import. A key consists of
// the package's path below the module and the type's name.
func (mod Module) Types(t *testing.T) map[string]reflect.Type {
	t.Helper()
	return find(t, mod.Dir).types(t, mod.Roots)
}

// Print fills a value of each type and prints it. A field that is named like a secret needs
// a tag that says how to print it.
func (mod Module) Print(t *testing.T) {
	t.Helper()
	m := find(t, mod.Dir)
	types := m.types(t, mod.Roots)
	for name, typ := range types {
		v := reflect.New(typ)
		m.plant(v.Elem(), false, 0)
		mod.Hidden(t, name, v.Interface())
		if typ.Kind() != reflect.Struct || slices.Contains(mod.Open, typ) {
			continue
		}
		for field := range typ.Fields() {
			kind := field.Type.Kind()
			if field.IsExported() && sensitive.MatchString(field.Name) && field.Tag.Get("secret") == "" &&
				(kind == reflect.String || kind == reflect.Slice || kind == reflect.Map && field.Type != reflect.TypeFor[sandbox.Env]()) {
				t.Errorf("%s.%s looks like a secret: tag the field with secret:\"value\", \"names\" or \"url\", and print the type with redact.Struct, or rename the field", name, field.Name)
			}
		}
	}
}

// types returns all exported types that have fields.
func (m *module) types(t *testing.T, roots []reflect.Type) map[string]reflect.Type {
	found := map[string]reflect.Type{}
	seen := map[reflect.Type]bool{}
	var visit func(reflect.Type)
	visit = func(typ reflect.Type) {
		if seen[typ] {
			return
		}
		seen[typ] = true
		switch typ.Kind() {
		case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Chan:
			visit(typ.Elem())
		case reflect.Map:
			visit(typ.Key())
			visit(typ.Elem())
		case reflect.Func:
			for in := range typ.Ins() {
				visit(in)
			}
			for out := range typ.Outs() {
				visit(out)
			}
		}
		if m.packages[typ.PkgPath()] == "" {
			return
		}
		if typ.Kind() == reflect.Struct {
			for field := range typ.Fields() {
				visit(field.Type)
			}
		}
		for _, t := range []reflect.Type{typ, reflect.PointerTo(typ)} {
			for m := range t.Methods() {
				visit(m.Type)
			}
		}
		if ast.IsExported(typ.Name()) && typ.Kind() != reflect.Interface && typ.Kind() != reflect.Func && !strings.Contains(typ.Name(), "[") {
			found[strings.TrimPrefix(typ.PkgPath(), m.path)+"."+typ.Name()] = typ
		}
	}
	for _, root := range roots {
		visit(root)
	}
	for pkg, dir := range m.packages {
		for _, name := range exportedTypes(t, dir) {
			name = strings.TrimPrefix(pkg, m.path) + "." + name
			_, ok := found[name]
			assert.True(t, ok, "%s can't be reached from another type: add it to Roots", name)
		}
	}
	return found
}

// exportedTypes returns the names of a package's exported structs, maps and slices.
func exportedTypes(t testing.TB, dir string) (names []string) {
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".go") || strings.HasSuffix(e.Name(), "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(dir, e.Name()), nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		for _, decl := range file.Decls {
			gen, _ := decl.(*ast.GenDecl)
			if gen == nil {
				continue
			}
			for _, spec := range gen.Specs {
				typ, _ := spec.(*ast.TypeSpec)
				if typ == nil || !typ.Name.IsExported() || typ.Assign.IsValid() || typ.TypeParams != nil {
					continue
				}
				switch typ.Type.(type) {
				case *ast.StructType, *ast.MapType, *ast.ArrayType:
					names = append(names, typ.Name.Name)
				}
			}
		}
	}
	return names
}

// sensitive matches names of fields that hold secrets.
var sensitive = regexp.MustCompile(`(?i)token|password|secret|^private$|^env$`)

// plant fills a value, including its unexported fields. Fields that may contain a secret
// get Mark, and others get another text.
func (m *module) plant(v reflect.Value, secret bool, depth int) {
	if depth > 6 {
		return
	}
	if !v.CanSet() {
		v = reflect.NewAt(v.Type(), unsafe.Pointer(v.UnsafeAddr())).Elem()
	}
	text := "text"
	if secret {
		text = Mark
	}
	ours := m.ours(v.Type().PkgPath())
	switch v.Kind() {
	case reflect.String:
		v.SetString(text)
	case reflect.Pointer:
		if elem := v.Type().Elem(); elem.PkgPath() == "" || strings.HasPrefix(elem.PkgPath(), project) {
			v.Set(reflect.New(elem))
			m.plant(v.Elem(), secret, depth+1)
		}
	case reflect.Struct:
		if !ours && v.Type().PkgPath() != "" {
			return
		}
		for i := range v.NumField() {
			m.plantField(v.Field(i), v.Type().Field(i), secret, depth)
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			v.SetBytes([]byte(text))
			return
		}
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		m.plant(v.Index(0), secret, depth+1)
	case reflect.Map:
		if v.Type().Key().Kind() != reflect.String {
			return
		}
		elem := reflect.New(v.Type().Elem()).Elem()
		m.plant(elem, secret || v.Type() == reflect.TypeFor[sandbox.Env]() || v.Type() == reflect.TypeFor[sandbox.PolicyHeaders](), depth+1)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(reflect.ValueOf("NAME").Convert(v.Type().Key()), elem)
	case reflect.Interface:
		if v.NumMethod() == 0 {
			v.Set(reflect.ValueOf(text))
		} else if reflect.TypeFor[error]().Implements(v.Type()) {
			v.Set(reflect.ValueOf(errors.New(text)))
		}
	}
}

func (m *module) plantField(v reflect.Value, field reflect.StructField, secret bool, depth int) {
	tag := field.Tag.Get("secret")
	switch {
	case tag == "url" && v.CanSet():
		v.SetString("https://user:" + Mark + "@example.com/x?token=" + Mark)
	case tag == "names" && field.Type.Kind() == reflect.Slice && v.CanSet():
		v.Set(reflect.ValueOf([]string{"NAME=" + Mark}))
	default:
		m.plant(v, secret || tag != "" || !field.IsExported() && sensitive.MatchString(field.Name), depth+1)
	}
}

// waysToPrint prints a value in all ways in which programs may print it, on purpose or by
// accident, and returns the outputs by the names of the ways.
func waysToPrint(v any) map[string]string {
	shown := map[string]string{}
	try := func(way string, print func() string) {
		defer func() { _ = recover() }() // a way that panics shows no secret
		shown[way] = print()
	}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%d", "%x", "%X", "%t", "%5.2v"} {
		try(verb, func() string { return fmt.Sprintf(verb, v) })
		try(verb+" in an error", func() string { return fmt.Errorf("failed with "+verb, v).Error() })
	}
	try("json", func() string { b, _ := json.Marshal(v); return string(b) })
	for way, handler := range map[string]func(*bytes.Buffer) slog.Handler{
		"slog json": func(b *bytes.Buffer) slog.Handler { return slog.NewJSONHandler(b, nil) },
		"slog text": func(b *bytes.Buffer) slog.Handler { return slog.NewTextHandler(b, nil) },
	} {
		try(way, func() string {
			var b bytes.Buffer
			slog.New(handler(&b)).Info("message", "value", v)
			return b.String()
		})
	}
	return shown
}

// Hidden takes a value that contains Mark, and prints it in all ways, alone and inside
// other values. The test fails if an output contains Mark.
func (mod Module) Hidden(t *testing.T, name string, v any) {
	t.Helper()
	rv := reflect.ValueOf(v)
	typed := reflect.New(reflect.StructOf([]reflect.StructField{{Name: "Field", Type: rv.Type()}})).Elem()
	typed.Field(0).Set(rv)
	list := reflect.MakeSlice(reflect.SliceOf(rv.Type()), 1, 1)
	list.Index(0).Set(rv)
	table := reflect.MakeMap(reflect.MapOf(reflect.TypeFor[string](), rv.Type()))
	table.SetMapIndex(reflect.ValueOf("key"), rv)
	inside := map[string]any{
		"alone": v, "in a field": typed.Interface(), "in a list": list.Interface(), "in a map": table.Interface(), "as any": struct{ V any }{v},
	}
	// Don't print the values of handles whose Format method has a pointer receiver. They
	// contain a lock, so programs don't copy them: vet would report it.
	formatter := reflect.TypeFor[fmt.Formatter]()
	if rv.Kind() == reflect.Pointer && !rv.IsNil() && (rv.Elem().Type().Implements(formatter) || !rv.Type().Implements(formatter)) {
		inside["by value"] = rv.Elem().Interface()
	}
	for where, value := range inside {
		for way, text := range waysToPrint(value) {
			if mod.Whole && strings.HasSuffix(way, "json") {
				continue
			}
			lower := strings.ToLower(text)
			if strings.Contains(text, Mark) || strings.Contains(lower, hex.EncodeToString([]byte(Mark))) {
				t.Errorf("%s shows a secret by %s %s: tag the field, and print the type with redact.Struct in its Format method: %.300s", name, way, where, text)
			}
		}
	}
}
