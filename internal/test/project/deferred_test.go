package project_test

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// theEnd says what a sample does instead.
const theEnd = "the context may have ended by then, and what is to be deleted stays: give the deferred call context.WithoutCancel(ctx)"

// TestDeferredContexts: no sample defers a call with a context that may have ended by
// then, in the pages, the examples and the comments: it would do nothing.
func TestDeferredContexts(t *testing.T) {
	atRoot(t)
	comment := regexp.MustCompile(`^\s*//\s+defer \w[\w.]*\(ctx\b`)
	samples := 0
	require.NoError(t, filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() && (d.Name() == ".git" || d.Name() == "testdata") {
			if d != nil && d.IsDir() {
				return filepath.SkipDir
			}
			return err
		}
		text, isSample := []byte(nil), strings.HasPrefix(filepath.ToSlash(name), "examples/") || strings.HasPrefix(d.Name(), "example")
		switch filepath.Ext(name) {
		case ".md", ".go":
			if text, err = os.ReadFile(name); err != nil {
				return err
			}
		}
		if filepath.Ext(name) == ".md" {
			for _, block := range goBlock.FindAllStringSubmatch(string(text), -1) {
				code := block[1]
				if !strings.HasPrefix(code, "package ") {
					code = fragment(code)
				}
				samples++
				assert.Empty(t, deferred(t, code), "%s: %s", name, theEnd)
			}
			return nil
		}
		for line := range bytes.Lines(text) {
			assert.False(t, comment.Match(line), "%s: %s: %s", name, theEnd, line)
		}
		if isSample && filepath.Ext(name) == ".go" && (!strings.HasSuffix(name, "_test.go") || strings.HasPrefix(d.Name(), "example")) {
			samples++
			assert.Empty(t, deferred(t, string(text)), "%s: %s", name, theEnd)
		}
		return nil
	}))
	assert.Greater(t, samples, 80)
}

// deferred returns the deferred calls of a program with a context that may have ended:
// any but one that was made of the background, or of another without its end.
func deferred(t *testing.T, code string) (list []string) {
	file, err := parser.ParseFile(token.NewFileSet(), "", code, 0)
	require.NoError(t, err, code)
	for _, decl := range file.Decls {
		lasts := map[string]bool{} // by the last assignment so far
		ast.Inspect(decl, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncType:
				for _, p := range n.Params.List {
					for _, name := range p.Names {
						delete(lasts, name.Name)
					}
				}
			case *ast.AssignStmt:
				if name, ok := n.Lhs[0].(*ast.Ident); ok {
					from := types.ExprString(n.Rhs[0])
					lasts[name.Name] = from == "context.Background()" || strings.Contains(from, "context.WithoutCancel(")
				}
			case *ast.DeferStmt:
				if strings.HasPrefix(types.ExprString(n.Call.Fun), "context.") {
					break
				}
				for _, arg := range n.Call.Args {
					if name, ok := arg.(*ast.Ident); ok && strings.HasSuffix(strings.ToLower(name.Name), "ctx") && !lasts[name.Name] {
						list = append(list, types.ExprString(n.Call))
					}
				}
			}
			return true
		})
	}
	return list
}
