package project_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// unidiomatic matches phrases for which the standard library has plain ones:
// forever, no longer, at most, is like, is not an error, reports whether, and
// response for what a server sends.
var unidiomatic = regexp.MustCompile(`(?i)\banswer(s|ed|ing)?\b|\btells of\b|\bgone on with\b|\bby stream\b|\bhad by\b|\bfor ever\b|\bany more\b|\bat the (most|least)\b|\bis as \[|\bis no (error|[a-z]+ at all)\b|\bsave (for|that)\b|\b(says|tells) (whether|if)\b`)

// code matches blocks and spans of code in Markdown.
var code = regexp.MustCompile("(?ms)^```.*?^```$|`[^`\n]*`")

// TestWordsOfDocs: the README, the changelog and the pages of docs use the
// standard library's words.
func TestWordsOfDocs(t *testing.T) {
	t.Parallel()
	atRoot(t)
	names, err := filepath.Glob("docs/*.md")
	require.NoError(t, err)
	for _, name := range append(names, "README.md", "CONTRIBUTING.md", "CHANGELOG.md") {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		for line := range strings.SplitSeq(code.ReplaceAllString(string(text), ""), "\n") {
			assert.Empty(t, unidiomatic.FindString(line), "%s: %s", name, line)
		}
	}
}

// TestWords: the documentation of exported names uses the standard library's
// words.
func TestWords(t *testing.T) {
	t.Parallel()
	atRoot(t)
	for _, dir := range []string{".", "auth", "proxy", "proxy/proxytest", "terminal", "sandboxtest"} {
		names, err := filepath.Glob(filepath.Join(dir, "*.go"))
		require.NoError(t, err)
		for _, name := range names {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			src, err := os.ReadFile(name)
			require.NoError(t, err)
			file, err := parser.ParseFile(token.NewFileSet(), name, src, parser.ParseComments)
			require.NoError(t, err)
			ast.FileExports(file)
			ast.Inspect(file, func(n ast.Node) bool {
				var text *ast.CommentGroup
				switch n := n.(type) {
				case *ast.File:
					text = n.Doc
				case *ast.FuncDecl:
					text = n.Doc
				case *ast.GenDecl:
					text = n.Doc
				case *ast.TypeSpec:
					text = n.Doc
				case *ast.ValueSpec:
					text = n.Doc
				case *ast.Field:
					text = n.Doc
				}
				plain := strings.Join(strings.Fields(text.Text()), " ")
				assert.Empty(t, unidiomatic.FindString(plain), "%s: %s", name, plain)
				return true
			})
		}
	}
}
