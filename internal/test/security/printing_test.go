package security_test

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/auth"
	"github.com/go-vercel/sandbox/auth/device"
	"github.com/go-vercel/sandbox/proxy"
	"github.com/go-vercel/sandbox/proxy/proxytest"
	"github.com/go-vercel/sandbox/sandboxtest"
	"github.com/go-vercel/sandbox/terminal"
)

const (
	module = "github.com/go-vercel/sandbox"
	// plantedMark is in every place where a type may hold a secret.
	plantedMark = "PLANTED-SECRET"
)

// publicPackages are the packages that users import.
var publicPackages = map[string]bool{
	module: true, module + "/auth": true, module + "/proxy": true, module + "/proxy/proxytest": true,
	module + "/sandboxtest": true, module + "/terminal": true,
}

// publicRoots returns types from which the others are reached through fields
// and methods, and those that are not reached.
func publicRoots() []reflect.Type {
	return []reflect.Type{
		reflect.TypeFor[sandbox.Client](), reflect.TypeFor[sandbox.ClientOptions](),
		reflect.TypeFor[sandbox.GitSource](), reflect.TypeFor[sandbox.TarballSource](), reflect.TypeFor[sandbox.SnapshotSource](),
		reflect.TypeFor[sandbox.APIError](), reflect.TypeFor[sandbox.RequestError](), reflect.TypeFor[sandbox.StreamError](),
		reflect.TypeFor[sandbox.FSError](), reflect.TypeFor[sandbox.ChangedError](),
		reflect.TypeFor[sandbox.ExitError](),
		reflect.TypeFor[sandbox.FileStat](), reflect.TypeFor[sandbox.Signal](),
		reflect.TypeFor[auth.Credentials](), reflect.TypeFor[auth.Options](), reflect.TypeFor[device.Code](),
		reflect.TypeFor[auth.MissingError](), reflect.TypeFor[auth.OIDCError](),
		reflect.TypeFor[proxy.Options](), reflect.TypeFor[proxy.Forwarder](), reflect.TypeFor[proxy.ForwarderOptions](), reflect.TypeFor[proxy.Meta](),
		reflect.TypeFor[proxytest.Authority](), reflect.TypeFor[proxytest.Firewall](),
		reflect.TypeFor[sandboxtest.Server](), reflect.TypeFor[sandboxtest.Recorder](), reflect.TypeFor[sandboxtest.Options](),
		reflect.TypeFor[terminal.Options](), reflect.TypeFor[terminal.ShellOptions](), reflect.TypeFor[terminal.Shell](),
		reflect.TypeFor[terminal.ShellError](), reflect.TypeFor[terminal.SignalError](),
	}
}

// publicTypes returns all exported types with content.
func publicTypes(t *testing.T) map[string]reflect.Type {
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
		if !publicPackages[typ.PkgPath()] {
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
			found[strings.TrimPrefix(typ.PkgPath(), module)+"."+typ.Name()] = typ
		}
	}
	for _, root := range publicRoots() {
		visit(root)
	}
	for pkg := range publicPackages {
		for _, name := range exportedTypes(t, filepath.Join("../../..", strings.TrimPrefix(pkg, module))) {
			assert.Contains(t, found, strings.TrimPrefix(pkg, module)+"."+name, "add it to publicRoots")
		}
	}
	return found
}

// exportedTypes returns the names of a package's exported structs, maps and
// slices.
func exportedTypes(t *testing.T, dir string) (names []string) {
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

// plant fills a value, including unexported fields: with the mark wherever
// there may be a secret, and with other text elsewhere.
func plant(v reflect.Value, secret bool, depth int) {
	if depth > 6 {
		return
	}
	if !v.CanSet() {
		v = reflect.NewAt(v.Type(), unsafe.Pointer(v.UnsafeAddr())).Elem()
	}
	text := "text"
	if secret {
		text = plantedMark
	}
	ours := publicPackages[v.Type().PkgPath()]
	switch v.Kind() {
	case reflect.String:
		v.SetString(text)
	case reflect.Pointer:
		if elem := v.Type().Elem(); elem.PkgPath() == "" || strings.HasPrefix(elem.PkgPath(), module) {
			v.Set(reflect.New(elem))
			plant(v.Elem(), secret, depth+1)
		}
	case reflect.Struct:
		if !ours && v.Type().PkgPath() != "" {
			return
		}
		for i := range v.NumField() {
			field := v.Type().Field(i)
			tag := field.Tag.Get("secret")
			if tag == "url" && v.Field(i).CanSet() {
				v.Field(i).SetString("https://user:" + plantedMark + "@example.com/x?token=" + plantedMark)
				continue
			}
			if tag == "names" && field.Type.Kind() == reflect.Slice && v.Field(i).CanSet() {
				v.Field(i).Set(reflect.ValueOf([]string{"NAME=" + plantedMark}))
				continue
			}
			plant(v.Field(i), secret || tag != "" || !field.IsExported() && sensitive.MatchString(field.Name), depth+1)
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			v.SetBytes([]byte(text))
			return
		}
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		plant(v.Index(0), secret, depth+1)
	case reflect.Map:
		if v.Type().Key().Kind() != reflect.String {
			return
		}
		elem := reflect.New(v.Type().Elem()).Elem()
		plant(elem, secret || v.Type() == reflect.TypeFor[sandbox.Env]() || v.Type() == reflect.TypeFor[sandbox.PolicyHeaders](), depth+1)
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

// waysToPrint returns the output of everything that programs may print a value
// with, by accident or not.
func waysToPrint(v any) map[string]string {
	shown := map[string]string{}
	try := func(way string, print func() string) {
		defer func() { _ = recover() }() // a panic shows nothing
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

// assertHidden prints a value in all ways, alone and inside other values.
func assertHidden(t *testing.T, name string, v any) {
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
	// A handle that only redacts itself through its pointer contains a lock, and
	// vet prevents copying it.
	formatter := reflect.TypeFor[fmt.Formatter]()
	if rv.Kind() == reflect.Pointer && !rv.IsNil() && (rv.Elem().Type().Implements(formatter) || !rv.Type().Implements(formatter)) {
		inside["by value"] = rv.Elem().Interface()
	}
	for where, value := range inside {
		for way, text := range waysToPrint(value) {
			lower := strings.ToLower(text)
			if strings.Contains(text, plantedMark) || strings.Contains(lower, hex.EncodeToString([]byte(plantedMark))) {
				t.Errorf("%s shows a secret by %s %s: %.300s", name, way, where, text)
			}
		}
	}
}

// TestPrintingEveryType prints every exported type in every way.
func TestPrintingEveryType(t *testing.T) {
	t.Parallel()
	types := publicTypes(t)
	assert.Greater(t, len(types), 80)
	for name, typ := range types {
		v := reflect.New(typ)
		plant(v.Elem(), false, 0)
		assertHidden(t, name, v.Interface())
		if typ.Kind() != reflect.Struct || typ == reflect.TypeFor[sandboxtest.Invocation]() {
			continue // set by tests for their own commands
		}
		for field := range typ.Fields() {
			kind := field.Type.Kind()
			if field.IsExported() && sensitive.MatchString(field.Name) && field.Tag.Get("secret") == "" &&
				(kind == reflect.String || kind == reflect.Slice || kind == reflect.Map && field.Type != reflect.TypeFor[sandbox.Env]()) {
				t.Errorf("%s.%s looks like a secret and has no tag that says how it is shown", name, field.Name)
			}
		}
	}
}

// TestPrintingValuesInUse prints values that were created and used, not only
// filled.
func TestPrintingValuesInUse(t *testing.T) {
	t.Parallel()
	srv := sandboxtest.New(t, &sandboxtest.Options{Token: plantedMark})
	creds := srv.Credentials()
	require.Equal(t, plantedMark, creds.Token)
	static := auth.Static(creds)
	cached := auth.Cache(static, 0)
	_, err := cached.Credentials(t.Context())
	require.NoError(t, err)
	client, err := sandbox.NewClient(&sandbox.ClientOptions{BaseURL: srv.URL, Credentials: cached})
	require.NoError(t, err)
	t.Cleanup(client.CloseIdleConnections)
	env := sandbox.Env{"NAME": plantedMark}
	sb, err := client.Create(t.Context(), &sandbox.CreateOptions{Env: env})
	require.NoError(t, err)
	done, err := sb.RunCommand(t.Context(), "true", nil, &sandbox.CommandOptions{Env: env})
	require.NoError(t, err)
	cmd := sb.CommandContext(t.Context(), "true")
	cmd.Env = []string{"NAME=" + plantedMark}
	policy := &sandbox.NetworkPolicy{Rules: map[string][]sandbox.PolicyRule{
		"a.example": {{Transform: []sandbox.PolicyTransform{{Headers: sandbox.PolicyHeaders{"Authorization": plantedMark}}}}},
	}}
	values := map[string]any{
		"server": srv, "client": client, "sandbox": sb, "session": sb.CurrentSession(), "info": sb.Info(), "result": done, "command": done.Command,
		"Cmd": cmd, "policy": policy, "rule": &policy.Rules["a.example"][0], "static": static, "cached": cached,
		"chain": auth.Chain(static, cached), "client options": &sandbox.ClientOptions{Credentials: cached}, "context": auth.ContextWithToken(t.Context(), plantedMark),
		"create with a policy":    &sandbox.CreateOptions{NetworkPolicy: policy, Env: env},
		"create with a source":    &sandbox.CreateOptions{Source: sandbox.GitSource{URL: "https://" + plantedMark + "@github.com/acme/x.git"}},
		"create with a tarball":   &sandbox.CreateOptions{Source: &sandbox.TarballSource{URL: "https://u:" + plantedMark + "@host/x.tgz"}},
		"a token as the user":     &sandbox.GitSource{URL: "https://x-access-token:" + plantedMark + "@github.com/acme/x.git"},
		"a token in the query":    &sandbox.GitSource{URL: "https://git.example/acme/x.git?access_token=" + plantedMark},
		"an address that is none": &sandbox.GitSource{URL: "https://%zz" + plantedMark},
		"an address for ssh":      &sandbox.GitSource{URL: plantedMark + "@github.com:acme/x.git"},
		"a signed address":        &sandbox.TarballSource{URL: "https://bucket.example/x.tgz?X-Amz-Signature=" + plantedMark},
		"rule of a proxy":         &proxy.Rule{Secret: proxy.StaticSecret(plantedMark)},
	}
	for name, v := range values {
		assertHidden(t, name, v)
	}
	assert.Equal(t, "{https://github.com/acme/x.git   0 main}", fmt.Sprint(sandbox.GitSource{URL: "https://github.com/acme/x.git", Revision: "main"}))
	assert.Equal(t, `{Token:REDACTED TeamID:t ProjectID:p}`, auth.Credentials{Token: "x", TeamID: "t", ProjectID: "p"}.String())
	assert.Equal(t, `auth.Credentials{Token:"REDACTED", TeamID:"t", ProjectID:"p"}`, fmt.Sprintf("%#v", &auth.Credentials{Token: "x", TeamID: "t", ProjectID: "p"}))
}
