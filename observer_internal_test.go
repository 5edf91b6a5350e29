package sandbox

import (
	"go/ast"
	"go/parser"
	"go/token"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestEventKinds: what package observe has is what users compare with.
func TestEventKinds(t *testing.T) {
	t.Parallel()
	kinds := func(file, prefix string) map[string]string {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		found := map[string]string{}
		for _, d := range parsed.Decls {
			if g, ok := d.(*ast.GenDecl); ok && g.Tok == token.CONST {
				for _, s := range g.Specs {
					v := s.(*ast.ValueSpec)
					found[prefix+v.Names[0].Name] = v.Values[0].(*ast.BasicLit).Value
				}
				break
			}
		}
		return found
	}
	assert.Equal(t, kinds("internal/observe/observe.go", "Event"), kinds("observer.go", ""))
}
