package project_test

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestKnots: few files of the client need each other, so that one can be read
// without all.
func TestKnots(t *testing.T) {
	t.Parallel()
	atRoot(t)
	const largest = 10
	needs := fileNeeds(t)
	require.Contains(t, needs["command.go"], "client.go")
	reached := map[string]map[string]bool{}
	for file := range needs {
		seen := map[string]bool{}
		for next := []string{file}; len(next) > 0; next = next[1:] {
			for other := range needs[next[0]] {
				if !seen[other] {
					seen[other] = true
					next = append(next, other)
				}
			}
		}
		reached[file] = seen
	}
	for file, others := range reached {
		var knot []string
		for other := range others {
			if reached[other][file] {
				knot = append(knot, other)
			}
		}
		if !assert.LessOrEqual(t, len(knot), largest, "files that need each other, one of them is %s: %v", file, knot) {
			for other, name := range needs[file] {
				if reached[other][file] {
					t.Logf("%s needs %s for %s", file, other, name)
				}
			}
			break
		}
	}
}

// longFunctions may be longer than others, each with the reason.
var longFunctions = map[string]string{
	"internal/wire/ndjson_string.go unescape": "the loop over the bytes of all output, which BenchmarkLogDecoder measures",
}

// TestLongFunctions: a function fits on a screen, and what it decides into a
// head. Programs that measure, examples and the player of recordings are free.
func TestLongFunctions(t *testing.T) {
	t.Parallel()
	atRoot(t)
	const maxLines, maxBranches = 75, 25
	found := map[string]string{}
	require.NoError(t, filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && slices.Contains([]string{".git", "testdata", "node_modules", "perf", "examples", "conformance"}, d.Name()):
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go"):
			return nil
		}
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, name, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, decl := range file.Decls {
			if fn, ok := decl.(*ast.FuncDecl); ok {
				lines, branches := fset.Position(fn.End()).Line-fset.Position(fn.Pos()).Line+1, countBranches(fn)
				if lines > maxLines || branches > maxBranches {
					found[filepath.ToSlash(name)+" "+fn.Name.Name] = fmt.Sprintf("%d lines, %d branches", lines, branches)
				}
			}
		}
		return nil
	}))
	for where, size := range found {
		assert.Contains(t, longFunctions, where, "a long function: %s", size)
	}
	for where := range longFunctions {
		assert.Contains(t, found, where, "it is not long any longer")
	}
}

func countBranches(fn *ast.FuncDecl) (n int) {
	ast.Inspect(fn, func(node ast.Node) bool {
		switch node := node.(type) {
		case *ast.IfStmt, *ast.ForStmt, *ast.RangeStmt, *ast.CommClause:
			n++
		case *ast.CaseClause:
			if node.List != nil {
				n++
			}
		case *ast.BinaryExpr:
			if node.Op == token.LAND || node.Op == token.LOR {
				n++
			}
		}
		return true
	})
	return n
}

// fileNeeds returns which files of the client need which others, and a name that
// they need of them.
func fileNeeds(t *testing.T) map[string]map[string]string {
	t.Helper()
	out, err := exec.Command("go", "list", "-export", "-deps", "-f", "{{.ImportPath}} {{.Export}}", ".").Output()
	require.NoError(t, err)
	compiled := map[string]string{}
	for line := range strings.Lines(string(out)) {
		name, file, _ := strings.Cut(strings.TrimSpace(line), " ")
		compiled[name] = file
	}
	fset := token.NewFileSet()
	var files []*ast.File
	names, err := filepath.Glob("*.go")
	require.NoError(t, err)
	for _, name := range names {
		if !strings.HasSuffix(name, "_test.go") {
			f, err := parser.ParseFile(fset, name, nil, parser.SkipObjectResolution)
			require.NoError(t, err)
			files = append(files, f)
		}
	}
	info := types.Info{Uses: map[*ast.Ident]types.Object{}}
	checker := types.Config{Importer: importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) { return os.Open(compiled[path]) })}
	pkg, err := checker.Check("sandbox", fset, files, &info)
	require.NoError(t, err)
	needs := map[string]map[string]string{}
	for id, used := range info.Uses {
		fn, isFunc := used.(*types.Func)
		method := isFunc && fn.Signature().Recv() != nil
		if used.Pkg() != pkg || !method && used.Parent() != pkg.Scope() {
			continue
		}
		from, to := fset.Position(id.Pos()).Filename, fset.Position(used.Pos()).Filename
		if from == to {
			continue
		}
		if needs[from] == nil {
			needs[from] = map[string]string{}
		}
		needs[from][to] = cmp.Or(needs[from][to], used.Name())
	}
	return needs
}
