package project_test

import (
	"cmp"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
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
