package sandboxtest_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestLocksShowInNames: a function that calls one whose name ends in Locked or InOp takes
// that lock, or has the same suffix.
func TestLocksShowInNames(t *testing.T) {
	notTests := func(f fs.FileInfo) bool { return !strings.HasSuffix(f.Name(), "_test.go") }
	for _, dir := range []string{"internal/store", "internal/box"} {
		packages, err := parser.ParseDir(token.NewFileSet(), dir, notTests, 0) //nolint:staticcheck // types are not needed
		require.NoError(t, err)
		var calls int
		for _, p := range packages {
			for _, f := range p.Files {
				for _, d := range f.Decls {
					if fn, ok := d.(*ast.FuncDecl); ok && fn.Body != nil {
						calls += checkLocks(t, fn)
					}
				}
			}
		}
		assert.Positive(t, calls, dir)
	}
}

// checkLocks checks the calls in a function, and returns the number of those with a lock
// in their names.
func checkLocks(t *testing.T, fn *ast.FuncDecl) (calls int) {
	takers := map[string][]string{"Locked": {"mu.Lock"}, "InOp": {"op.Lock", "lock"}}
	called := make(map[string]bool)
	takes := make(map[string]bool)
	ast.Inspect(fn.Body, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		sel, ok := call.Fun.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		name := sel.Sel.Name
		if inner, ok := sel.X.(*ast.SelectorExpr); ok {
			takes[inner.Sel.Name+"."+name] = true
		}
		takes[name] = true
		for suffix := range takers {
			if strings.HasSuffix(name, suffix) {
				called[suffix] = true
				calls++
			}
		}
		return true
	})
	for suffix := range called {
		ok := strings.HasSuffix(fn.Name.Name, suffix)
		for _, taker := range takers[suffix] {
			ok = ok || takes[taker]
		}
		assert.True(t, ok, "%s calls a function whose name ends in %s without that lock", fn.Name.Name, suffix)
	}
	return calls
}
