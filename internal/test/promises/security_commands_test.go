package promises_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestCommandsOfOurOwn: the code of this module sets Stdout and Stderr of every helper
// program that it runs in a sandbox. Otherwise the client would keep all of the output in
// memory, and the sandbox may have replaced the program by one that writes without end.
func TestCommandsOfOurOwn(t *testing.T) {
	t.Parallel()
	calls := 0
	require.NoError(t, filepath.WalkDir("../../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			switch d.Name() {
			case "examples", "testdata", "perf", "tools", "conformance", "testkit", "needs", "node_modules":
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || len(call.Args) != 4 {
				return true
			}
			if f, ok := call.Fun.(*ast.SelectorExpr); ok && f.Sel.Name == "RunCommand" {
				calls++
				assert.True(t, setsWriters(call.Args[3]), "%s: set Stdout and Stderr, otherwise the output is kept in memory without a limit", set.Position(call.Pos()))
			}
			return true
		})
		return nil
	}))
	assert.Greater(t, calls, 5)
}

// setsWriters reports whether an expression for options sets both Stdout and Stderr. It
// assumes so for a variable.
func setsWriters(options ast.Expr) bool {
	if address, ok := options.(*ast.UnaryExpr); ok {
		options = address.X
	}
	if name, ok := options.(*ast.Ident); ok {
		return name.Name != "nil"
	}
	var keys []string
	ast.Inspect(options, func(n ast.Node) bool {
		if kv, ok := n.(*ast.KeyValueExpr); ok {
			if key, ok := kv.Key.(*ast.Ident); ok {
				keys = append(keys, key.Name)
			}
		}
		return true
	})
	return strings.Contains(strings.Join(keys, " "), "Stdout") && strings.Contains(strings.Join(keys, " "), "Stderr")
}
