package project_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestImportRules compares the imports between packages of this module with the
// table in docs/architecture.md: each must be in it.
func TestImportRules(t *testing.T) {
	t.Parallel()
	atRoot(t)
	const module = "github.com/go-vercel/sandbox"
	text, err := os.ReadFile("docs/architecture.md")
	require.NoError(t, err)
	allowed := map[string][]string{}
	code := regexp.MustCompile("`([^`]+)`")
	for _, m := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\|[^|]*\\|([^|]*)\\|$").FindAllStringSubmatch(string(text), -1) {
		allowed[m[1]] = []string{}
		for _, p := range code.FindAllStringSubmatch(m[2], -1) {
			allowed[m[1]] = append(allowed[m[1]], p[1])
		}
	}
	require.Greater(t, len(allowed), 10)

	out, err := exec.Command("go", "list", "-json=ImportPath,Imports", "./...").Output()
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
		for _, imported := range pkg.Imports {
			if imported != module && !strings.HasPrefix(imported, module+"/") {
				continue
			}
			ok := slices.ContainsFunc(allowed[name], func(pattern string) bool {
				match, err := path.Match(pattern, short(imported))
				return err == nil && match
			})
			assert.True(t, ok, "docs/architecture.md does not allow %s to import %s", name, short(imported))
		}
	}
	// The dependencies of the heavy modules stay out of the root module.
	sum, err := os.ReadFile("go.sum")
	require.NoError(t, err)
	for _, heavy := range []string{"go.temporal.io/", "github.com/spf13/cobra", "github.com/modelcontextprotocol/"} {
		assert.NotContains(t, string(sum), heavy)
	}
}
