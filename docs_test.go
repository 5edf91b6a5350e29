package sandbox_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var (
	goBlock = regexp.MustCompile("(?ms)^```go\n(.*?)^```$")
	// imports are the packages that a fragment may use by name.
	imports = map[string]string{
		"context": "context", "errors": "errors", "fmt": "fmt", "io": "io", "fs": "io/fs", "json": "encoding/json", "log": "log",
		"http": "net/http", "os": "os", "regexp": "regexp", "slog": "log/slog", "strings": "strings", "time": "time",
		"sandbox": "github.com/go-vercel/sandbox", "auth": "github.com/go-vercel/sandbox/auth", "sandboxtest": "github.com/go-vercel/sandbox/sandboxtest", "proxy": "github.com/go-vercel/sandbox/proxy",
	}
)

// ofAnotherModule are documents about modules of their own, which test them.
var ofAnotherModule = map[string]bool{"docs/durable.md": true, "docs/cli.md": true}

// TestDocsCompile compiles every block of Go in the README and in docs. A block
// without a package clause is a fragment of a function that has a context, a
// sandbox and a client.
func TestDocsCompile(t *testing.T) {
	files, err := filepath.Glob("docs/*.md")
	require.NoError(t, err)
	dir := importingModule(t)
	blocks := 0
	of, err := filepath.Glob("examples/*/README.md")
	require.NoError(t, err)
	files = append(files, of...)
	for _, file := range append(files, "README.md", "docs/skill/SKILL.md", "proxy/README.md", "sandboxtest/README.md") {
		if ofAnotherModule[file] {
			continue
		}
		text, err := os.ReadFile(file)
		if os.IsNotExist(err) {
			continue
		}
		require.NoError(t, err)
		for i, block := range goBlock.FindAllStringSubmatch(string(text), -1) {
			blocks++
			pkg := filepath.Join(dir, fmt.Sprintf("%s_%d", strings.ReplaceAll(strings.TrimSuffix(file, ".md"), "/", "_"), i))
			require.NoError(t, os.Mkdir(pkg, 0o755))
			name, code := "block.go", block[1]
			if strings.HasPrefix(code, "package ") {
				if strings.Contains(strings.SplitN(code, "\n", 2)[0], "_test") {
					name = "block_test.go"
				}
			} else {
				code = fragment(code)
			}
			require.NoError(t, os.WriteFile(filepath.Join(pkg, name), []byte(code), 0o644))
		}
	}
	require.Greater(t, blocks, 5)
	vet := exec.Command("go", "vet", "./...")
	vet.Dir = dir
	vet.Env = append(os.Environ(), "GOFLAGS=", "GOWORK=off")
	out, err := vet.CombinedOutput()
	assert.NoError(t, err, "%s", out)
}

func fragment(code string) string {
	var b strings.Builder
	b.WriteString("package fragment\n\nimport (\n")
	for name, path := range imports {
		if name == "context" || name == "sandbox" || regexp.MustCompile(`\b`+name+`\.[A-Z]`).MatchString(code) {
			fmt.Fprintf(&b, "\t%s %q\n", name, path)
		}
	}
	b.WriteString(")\n\nfunc _(ctx context.Context, sb *sandbox.Sandbox, client *sandbox.Client) error {\n")
	b.WriteString(code)
	b.WriteString("\treturn nil\n}\n")
	return b.String()
}

// TestDocsNameTests: a test that the documentation names as its proof exists.
func TestDocsNameTests(t *testing.T) {
	files, err := filepath.Glob("docs/*.md")
	require.NoError(t, err)
	var code strings.Builder
	require.NoError(t, filepath.WalkDir(".", func(path string, d os.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, "_test.go") {
			text, readErr := os.ReadFile(path)
			code.Write(text)
			return readErr
		}
		return err
	}))
	named := 0
	for _, file := range append(files, "README.md") {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		if ofAnotherModule[file] {
			continue
		}
		for _, m := range regexp.MustCompile("`((?:Test|Benchmark)[A-Z]\\w*)`").FindAllStringSubmatch(string(text), -1) {
			named++
			assert.Contains(t, code.String(), "func "+m[1]+"(", "%s names %s", file, m[1])
		}
	}
	assert.Greater(t, named, 5)
}

// importingModule makes a module in a folder of the test's own that imports this
// one, with the same requirements, so that nothing has to be looked up.
func importingModule(t *testing.T) string {
	t.Helper()
	here, err := os.Getwd()
	require.NoError(t, err)
	dir := t.TempDir()
	for name, add := range map[string]string{
		"go.mod": "\nrequire github.com/go-vercel/sandbox v0.0.0\n\nreplace github.com/go-vercel/sandbox => " + here + "\n", "go.sum": "",
	} {
		ours, err := os.ReadFile(name)
		require.NoError(t, err)
		text := strings.Replace(string(ours), "module github.com/go-vercel/sandbox\n", "module example.com/importer\n", 1)
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text+add), 0o644))
	}
	return dir
}
