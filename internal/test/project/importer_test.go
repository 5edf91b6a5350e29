package project_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/internal/test/needs"
	"github.com/go-vercel/sandbox/sandboxtest"
)

// TestImporter checks which modules a program links if it imports the client. With
// SANDBOX_SLOW=1 it also builds, tests and runs a program in another module, without
// network.
func TestImporter(t *testing.T) {
	t.Parallel()
	atRoot(t)
	dir := importingModule(t)
	for _, name := range []string{"main.go", "main_test.go"} {
		code, err := os.ReadFile(filepath.Join("internal/test/project/testdata/importer", name))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), code, 0o644))
	}
	srv := sandboxtest.New(t, nil)
	c := srv.Credentials()
	run := func(args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "go", args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GOFLAGS=", "GOWORK=off", "GOPROXY=off",
			"VERCEL_SANDBOX_BASE_URL="+srv.URL, "VERCEL_TOKEN="+c.Token, "VERCEL_TEAM_ID="+c.TeamID, "VERCEL_PROJECT_ID="+c.ProjectID)
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "go %s\n%s", strings.Join(args, " "), out)
		return string(out)
	}
	// Otherwise the programs of TestDocs show that other modules can use this one.
	if needs.Slow() {
		assert.Contains(t, run("run", "."), "hello from a stranger, gone: true\n")
		run("test", "-vet=off", ".")
	}

	// The client needs seven modules, as the README says, and none for terminals, JWTs and tests.
	var modules, deps []string
	for line := range strings.Lines(run("list", "-deps", "-f", "{{.ImportPath}} {{with .Module}}{{.Path}}{{end}}", "github.com/go-vercel/sandbox")) {
		name, module, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		if deps = append(deps, name); module != "" {
			modules = append(modules, module)
		}
	}
	slices.Sort(modules)
	assert.Equal(t, []string{
		"github.com/go-vercel/sandbox", "github.com/gofrs/flock", "github.com/google/go-querystring",
		"github.com/hashicorp/go-cleanhttp", "github.com/hashicorp/go-retryablehttp", "github.com/klauspost/compress",
		"golang.org/x/sys", "golang.org/x/term",
	}, slices.Compact(modules), "the README says how many modules a program links: change the README, or import the new module only in packages that the client does not import")
	for _, heavy := range []string{"github.com/coder/websocket", "github.com/creack/pty", "github.com/go-jose/go-jose/v4", "github.com/stretchr/testify/assert", "testing",
		"github.com/go-vercel/sandbox/sandboxtest"} {
		assert.False(t, slices.Contains(deps, heavy), "each program that imports the client would link %s: import it only in packages that the client does not import", heavy)
	}
}

// TestModulesOfAdopters: docs/maintainers/architecture.md has a row for each module that may
// get into the go.sum of a program that imports this module. The row says which package
// imports it and whether it can be removed.
func TestModulesOfAdopters(t *testing.T) {
	t.Parallel()
	atRoot(t)
	sums, err := os.ReadFile("go.sum")
	require.NoError(t, err)
	page, err := os.ReadFile("docs/maintainers/architecture.md")
	require.NoError(t, err)
	_, section, found := strings.Cut(string(page), "\n## Modules of an adopter\n")
	require.True(t, found)
	section, _, _ = strings.Cut(section, "\n## ")
	var listed, used []string
	for line := range strings.Lines(section) {
		if cells := strings.Split(line, "|"); len(cells) > 1 {
			for _, name := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(cells[1], -1) {
				listed = append(listed, name[1])
			}
		}
	}
	for line := range strings.Lines(string(sums)) {
		used = append(used, strings.TrimPrefix(strings.Fields(line)[0], "github.com/"))
	}
	slices.Sort(used)
	assert.ElementsMatch(t, slices.Compact(used), listed, "the table in docs/maintainers/architecture.md, Modules of an adopter, differs from go.sum: add or remove a row")
}
