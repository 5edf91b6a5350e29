package project_test

import (
	"fmt"
	"go/scanner"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/internal/test/needs"
	"github.com/go-vercel/sandbox/sandboxtest"
)

var (
	// goBlock matches a block of Go, and the block with its output if one follows.
	goBlock = regexp.MustCompile("(?ms)^```go\n(.*?)^```$(?:\n\n^```\n(.*?)^```$)?")
	// imports maps names of packages to their paths. A fragment may use these packages
	// without importing them.
	imports = map[string]string{
		"context": "context", "errors": "errors", "fmt": "fmt", "io": "io", "fs": "io/fs", "json": "encoding/json", "log": "log",
		"http": "net/http", "httputil": "net/http/httputil", "url": "net/url", "os": "os", "regexp": "regexp", "slog": "log/slog", "slices": "slices", "strings": "strings", "time": "time",
		"sandbox": "github.com/go-vercel/sandbox", "agent": "github.com/go-vercel/sandbox/agent", "auth": "github.com/go-vercel/sandbox/auth", "sandboxtest": "github.com/go-vercel/sandbox/sandboxtest", "proxy": "github.com/go-vercel/sandbox/proxy", "terminal": "github.com/go-vercel/sandbox/terminal",
		"outputs": "github.com/go-vercel/sandbox/outputs", "tunnel": "github.com/go-vercel/sandbox/tunnel", "pool": "github.com/go-vercel/sandbox/pool", "preview": "github.com/go-vercel/sandbox/preview", "net": "net", "sync": "sync",
	}
)

// ofAnotherModule lists the documents that the tests of other modules check.
var ofAnotherModule = map[string]bool{"docs/durable.md": true, "docs/durable-service.md": true, "docs/cli.md": true}

// pages returns the pages of docs, including those for maintainers.
func pages(t *testing.T) []string {
	t.Helper()
	var all []string
	for _, pattern := range []string{"docs/*.md", "docs/maintainers/*.md"} {
		files, err := filepath.Glob(pattern)
		require.NoError(t, err)
		require.NotEmpty(t, files, pattern)
		all = append(all, files...)
	}
	return all
}

// program is a block that is a complete program, with its output according to the document.
type program struct{ name, code, output string }

// TestDocs compiles every block of Go in the documents. A block without a package clause
// consists of declarations, or of statements of a function with a context, a sandbox and a
// client. The test runs complete programs on the emulator, and compares their output with
// the document.
func TestDocs(t *testing.T) {
	t.Parallel()
	atRoot(t)
	dir := importingModule(t)
	var programs []program
	for _, file := range append(pages(t), "README.md", "docs/skill/SKILL.md") {
		if ofAnotherModule[file] {
			continue
		}
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for i, block := range goBlock.FindAllStringSubmatch(string(text), -1) {
			name, code := fmt.Sprintf("%s_%d", strings.NewReplacer("/", "_", "-", "_").Replace(strings.TrimSuffix(file, ".md")), i), block[1]
			at := filepath.Join("fragments", name+".go")
			switch {
			case strings.HasPrefix(code, "package main\n"):
				at = name + ".go"
				programs = append(programs, program{name, code, block[2]})
				code = asPackageFile(code, name)
			case strings.HasPrefix(code, "package "):
				at, code = name+"_test.go", packageClause.ReplaceAllString(code, "package documents_test\n")
			default:
				code = fragment(code)
			}
			require.NoError(t, os.MkdirAll(filepath.Join(dir, filepath.Dir(at)), 0o755))
			require.NoError(t, os.WriteFile(filepath.Join(dir, at), []byte(code), 0o644))
		}
	}
	require.GreaterOrEqual(t, len(programs), 7)
	// Combine all blocks to one program, because compiling and linking each of them would
	// take longer than the rest of the test.
	var all strings.Builder
	all.WriteString("package documents\n\nimport (\n\t\"os\"\n\t\"testing\"\n\n\t_ \"example.com/importer/fragments\"\n)\n\nfunc TestMain(*testing.M) {\n\tname := os.Args[1]\n\tos.Args = os.Args[:1]\n\tswitch name {\n")
	for _, p := range programs {
		fmt.Fprintf(&all, "\tcase %q:\n\t\tmain_%s()\n", p.name, p.name)
	}
	all.WriteString("\t}\n}\n")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "main_test.go"), []byte(all.String()), 0o644))
	bin := filepath.Join(dir, "programs")
	run(t, dir, "go", "test", "-c", "-vet=off", "-ldflags=-s -w", "-o", bin, ".")
	for _, p := range programs {
		if p.output == "" && !strings.HasPrefix(p.name, "docs_") && p.name != "README_0" {
			continue
		}
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			if strings.Contains(p.code, `"python3"`) {
				needs.Programs(t, "python3")
			}
			require.NotEmpty(t, p.output, "the document lacks the output of this program: add a block with the output after the program")
			srv := sandboxtest.New(t, nil)
			if strings.Contains(p.code, "Ports:") && !srv.Enforces().Policies { // ports are the machine's, unless sandboxes have networks of their own
				needs.Missing(t, "sandboxes with networks of their own, so that no other program uses the port")
			}
			cmd := exec.CommandContext(t.Context(), bin, p.name)
			cmd.Dir = t.TempDir()
			cmd.Env = append(os.Environ(), srv.Environ()...)
			var stderr strings.Builder
			cmd.Stderr = &stderr
			out, err := cmd.Output()
			require.NoError(t, err, "%s", &stderr)
			assert.Equal(t, maskVarying(p.output), maskVarying(string(out)), "the output in the document differs from the program's: correct the document or the program")
		})
	}
}

func run(t *testing.T, dir, name string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOFLAGS=", "GOWORK=off")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "a block of Go in a document does not compile; the file name below contains the document and the number of the block, from 0:\n%s", out)
}

var (
	packageClause = regexp.MustCompile(`^package \w+\n`)
	topLevel      = regexp.MustCompile(`(?m)^(?:func|type|var|const) (\w+)`)
)

// asPackageFile turns a program into a file of a package that contains other programs, too. It
// appends the program's name to all names that the program declares.
func asPackageFile(code, name string) string {
	code = packageClause.ReplaceAllString(code, "package documents\n")
	own := map[string]bool{}
	for _, m := range topLevel.FindAllStringSubmatch(code, -1) {
		own[m[1]] = true
	}
	var b strings.Builder
	var s scanner.Scanner
	files := token.NewFileSet()
	file := files.AddFile("", -1, len(code))
	s.Init(file, []byte(code), nil, 0)
	copied, before := 0, token.ILLEGAL
	for {
		pos, tok, text := s.Scan()
		if tok == token.EOF {
			return b.String() + code[copied:]
		}
		if tok == token.IDENT && own[text] && before != token.PERIOD {
			end := file.Offset(pos) + len(text)
			b.WriteString(code[copied:end] + "_" + name)
			copied = end
		}
		before = tok
	}
}

// fragment turns a block without a package clause into a file.
func fragment(code string) string {
	var b strings.Builder
	b.WriteString("package fragment\n\nimport (\n")
	declares := regexp.MustCompile(`(?m)^(type|func) `).MatchString(code)
	for name, path := range imports {
		if !declares && (name == "context" || name == "sandbox") || regexp.MustCompile(`\b`+name+`\.[A-Z]`).MatchString(code) {
			fmt.Fprintf(&b, "\t%s %q\n", name, path)
		}
	}
	if declares {
		return b.String() + ")\n\n" + code
	}
	b.WriteString(")\n\nfunc _(ctx context.Context, sb *sandbox.Sandbox, client *sandbox.Client) error {\n")
	b.WriteString(code)
	if !regexp.MustCompile(`(?m)^return\b`).MatchString(code) {
		b.WriteString("\treturn nil\n")
	}
	return b.String() + "}\n"
}

// maskVarying replaces the command IDs and durations in an output, which vary between runs.
func maskVarying(output string) string {
	output = regexp.MustCompile(`\bc[0-9a-f]{32}\b`).ReplaceAllString(output, "ID")
	return regexp.MustCompile(`\b[0-9.]+(ms|s)\b`).ReplaceAllString(output, "TIME")
}

// TestDocsLinks: the target of each link within the repository exists, including its
// heading, and docs/README.md links to every page of docs.
func TestDocsLinks(t *testing.T) {
	t.Parallel()
	atRoot(t)
	var files []string
	require.NoError(t, filepath.WalkDir(".", func(path string, d os.DirEntry, err error) error {
		if err == nil && d.IsDir() && (d.Name() == ".git" || d.Name() == "testdata" || d.Name() == "node_modules") {
			return filepath.SkipDir
		}
		if err == nil && (strings.HasSuffix(path, ".md") || path == "llms.txt") {
			files = append(files, path)
		}
		return err
	}))
	link := regexp.MustCompile(`\]\(([^)\s]+)\)`)
	fenced := regexp.MustCompile("(?ms)^```.*?^```$")
	links, linked := 0, map[string]bool{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, m := range link.FindAllStringSubmatch(fenced.ReplaceAllString(string(text), ""), -1) {
			if strings.Contains(m[1], "://") || strings.HasPrefix(m[1], "mailto:") {
				continue
			}
			links++
			path, heading, _ := strings.Cut(m[1], "#")
			target := file
			if path != "" {
				target = filepath.Join(filepath.Dir(file), path)
			}
			if file == filepath.Join("docs", "README.md") {
				linked[target] = true
			}
			if _, err := os.Stat(target); !assert.NoError(t, err, "%s links to %s, which does not exist: correct the link, or the heading that it names", file, m[1]) || heading == "" {
				continue
			}
			there, err := os.ReadFile(target)
			require.NoError(t, err)
			assert.Contains(t, headings(string(there)), heading, "%s links to %s, which does not exist: correct the link, or the heading that it names", file, m[1])
		}
	}
	assert.Greater(t, links, 50)
	for _, page := range pages(t) {
		assert.True(t, linked[page] || page == filepath.Join("docs", "README.md"), "docs/README.md does not link to %s: add a line", page)
	}
}

// headings returns the anchors that GitHub generates for the headings of a document.
func headings(text string) []string {
	var names []string
	for _, m := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(text, -1) {
		name := strings.ToLower(strings.TrimSpace(m[1]))
		name = regexp.MustCompile(`[^\p{L}\p{N} _-]`).ReplaceAllString(name, "")
		names = append(names, strings.ReplaceAll(name, " ", "-"))
	}
	return names
}

// importingModule creates a module that imports this one, in a temporary folder. It has the
// same requirements as this one, so that the go command does not download anything.
func importingModule(t *testing.T) string {
	t.Helper()
	here, err := os.Getwd()
	require.NoError(t, err)
	dir := t.TempDir()
	for name, add := range map[string]string{
		"go.mod": "\nrequire github.com/go-vercel/sandbox v0.0.0\n\nreplace github.com/go-vercel/sandbox => " + strconv.Quote(here) + "\n", "go.sum": "",
	} {
		ours, err := os.ReadFile(name)
		require.NoError(t, err)
		text := strings.Replace(string(ours), "module github.com/go-vercel/sandbox\n", "module example.com/importer\n", 1)
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text+add), 0o644))
	}
	return dir
}
