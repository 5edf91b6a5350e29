package project_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestImportRules: the imports between the packages of this module are those of
// the table in docs/maintainers/architecture.md, and lead down in it. A package
// without a row imports none. Without it a client linked what only the emulator, or
// a tool, needs, and two packages grew into one.
func TestImportRules(t *testing.T) {
	t.Parallel()
	atRoot(t)
	const module = "github.com/go-vercel/sandbox"
	text, err := os.ReadFile("docs/maintainers/architecture.md")
	require.NoError(t, err)
	_, table, _ := strings.Cut(string(text), "\n## Packages\n")
	table, _, _ = strings.Cut(table, "\n## ")
	allowed := map[string][]string{}
	row := map[string]int{}
	code := regexp.MustCompile("`([^`]+)`")
	for _, m := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\|[^|]*\\|([^|]*)\\|$").FindAllStringSubmatch(table, -1) {
		allowed[m[1]] = []string{}
		row[m[1]] = len(row)
		for _, p := range code.FindAllStringSubmatch(m[2], -1) {
			allowed[m[1]] = append(allowed[m[1]], p[1])
		}
	}
	require.Greater(t, len(allowed), 10)
	for name, imports := range allowed {
		for _, path := range imports {
			if below, ok := row[path]; ok {
				assert.Greater(t, below, row[name], "the row of %s stands above that of %s, which imports it: move it down", path, name)
			}
		}
	}

	list := exec.Command("go", "list", "-json=ImportPath,Imports", "./...")
	list.Env = append(list.Environ(), "GOOS=linux") // elsewhere the emulator imports less
	out, err := list.Output()
	require.NoError(t, err)
	short := func(path string) string {
		if path == module {
			return "."
		}
		return strings.TrimPrefix(path, module+"/")
	}
	for dec := json.NewDecoder(strings.NewReader(string(out))); dec.More(); {
		var pkg struct {
			ImportPath string
			Imports    []string
		}
		require.NoError(t, dec.Decode(&pkg))
		name := short(pkg.ImportPath)
		if strings.HasPrefix(name, "examples") || strings.HasPrefix(name, "docs") {
			continue // users of the rest
		}
		imported := []string{}
		for _, path := range pkg.Imports {
			if path == module || strings.HasPrefix(path, module+"/") {
				imported = append(imported, short(path))
			}
		}
		assert.ElementsMatch(t, imported, allowed[name], "the imports of %s are not those of its row in docs/maintainers/architecture.md: change the row if they should be, or the import", name)
		delete(allowed, name)
	}
	assert.Empty(t, allowed, "docs/maintainers/architecture.md has rows of packages that there are not: remove them")
	// The dependencies of the heavy modules stay out of the root module.
	sum, err := os.ReadFile("go.sum")
	require.NoError(t, err)
	for _, heavy := range []string{"go.temporal.io/", "github.com/spf13/cobra", "github.com/modelcontextprotocol/"} {
		assert.NotContains(t, string(sum), heavy, "everybody who imports the client would load it: it belongs into a module of its own")
	}
}
