package project_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestImportRules: each package imports exactly the packages of this module that its line in
// testdata/imports.txt lists, and their lines are below its own. A package without a line
// imports none. So the client does not link code that only the emulator or a tool needs.
func TestImportRules(t *testing.T) {
	t.Parallel()
	atRoot(t)
	const module = "github.com/go-vercel/sandbox"
	text, err := os.ReadFile("internal/test/project/testdata/imports.txt")
	require.NoError(t, err)
	allowed := map[string][]string{}
	row := map[string]int{}
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		name, imports, _ := strings.Cut(line, ":")
		allowed[name] = strings.Fields(imports)
		row[name] = len(row)
	}
	require.Greater(t, len(allowed), 10)
	for name, imports := range allowed {
		for _, path := range imports {
			if below, ok := row[path]; ok {
				assert.Greater(t, below, row[name], "the line of %s is above that of %s, which imports it: move it down", path, name)
			}
		}
	}

	list := exec.Command("go", "list", "-json=ImportPath,Imports", "./...")
	list.Env = append(list.Environ(), "GOOS=linux") // on other systems, the emulator imports fewer packages
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
			continue // these packages may import all others
		}
		imported := []string{}
		for _, path := range pkg.Imports {
			if path == module || strings.HasPrefix(path, module+"/") {
				imported = append(imported, short(path))
			}
		}
		assert.ElementsMatch(t, imported, allowed[name], "the imports of %s differ from its line in internal/test/project/testdata/imports.txt: remove the import, or change the line if you need the import", name)
		delete(allowed, name)
	}
	assert.Empty(t, allowed, "internal/test/project/testdata/imports.txt lists packages that don't exist: remove their lines")
	// The root module must not depend on the modules that only the other modules need.
	sum, err := os.ReadFile("go.sum")
	require.NoError(t, err)
	for _, heavy := range []string{"go.temporal.io/", "github.com/spf13/cobra", "github.com/modelcontextprotocol/"} {
		assert.NotContains(t, string(sum), heavy, "each program that imports the client would load it: move the code that needs it to another module")
	}
}
