package project_test

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/internal/test/needs"
	"github.com/go-vercel/sandbox/sandboxtest"
)

var (
	goBlock = regexp.MustCompile("(?ms)^```go\n(.*?)^```$")
	// imports are the packages that a fragment may use without importing them.
	imports = map[string]string{
		"context": "context", "errors": "errors", "fmt": "fmt", "io": "io", "fs": "io/fs", "json": "encoding/json", "log": "log",
		"http": "net/http", "httputil": "net/http/httputil", "url": "net/url", "os": "os", "regexp": "regexp", "slog": "log/slog", "slices": "slices", "strings": "strings", "time": "time",
		"sandbox": "github.com/go-vercel/sandbox", "agent": "github.com/go-vercel/sandbox/agent", "auth": "github.com/go-vercel/sandbox/auth", "sandboxtest": "github.com/go-vercel/sandbox/sandboxtest", "proxy": "github.com/go-vercel/sandbox/proxy", "terminal": "github.com/go-vercel/sandbox/terminal",
		"outputs": "github.com/go-vercel/sandbox/outputs", "tunnel": "github.com/go-vercel/sandbox/tunnel", "pool": "github.com/go-vercel/sandbox/pool", "preview": "github.com/go-vercel/sandbox/preview", "net": "net", "sync": "sync",
	}
)

// ofAnotherModule are documents about other modules, which test them.
var ofAnotherModule = map[string]bool{"docs/durable.md": true, "docs/durable-service.md": true, "docs/cli.md": true}

// pages returns the pages of docs, those for maintainers with them.
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

// TestDocsCompile compiles every block of Go in the README and in docs, and vets
// them without -short. A block without a package clause is a fragment of a function
// that has a context, a sandbox and a client.
func TestDocsCompile(t *testing.T) {
	atRoot(t)
	files := pages(t)
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
	// go vet reads all of the standard library anew.
	args := []string{"vet", "./..."}
	if testing.Short() {
		args = []string{"list", "-export", "-test", "./..."}
	}
	compile := exec.Command("go", args...)
	compile.Dir = dir
	compile.Env = append(os.Environ(), "GOFLAGS=", "GOWORK=off")
	out, err := compile.CombinedOutput()
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
	if regexp.MustCompile(`(?m)^(type|func) `).MatchString(code) {
		return b.String() + ")\n\n" + code
	}
	b.WriteString(")\n\nfunc _(ctx context.Context, sb *sandbox.Sandbox, client *sandbox.Client) error {\n")
	b.WriteString(code)
	if !regexp.MustCompile(`(?m)^return\b`).MatchString(code) {
		b.WriteString("\treturn nil\n")
	}
	return b.String() + "}\n"
}

// goProgram matches a whole program in a document, followed by the block with
// its output, if there is one.
var goProgram = regexp.MustCompile("(?ms)^```go\n(package main\n.*?)^```$(?:\n\n^```\n(.*?)^```$)?")

// TestDocsPrograms runs the whole programs of the README and of docs on the
// emulator and compares their output with the document.
func TestDocsPrograms(t *testing.T) {
	t.Parallel()
	atRoot(t)
	files := pages(t)
	dir := importingModule(t)
	type program struct{ name, code, output string }
	var programs []program
	for _, file := range append(files, "README.md") {
		if ofAnotherModule[file] {
			continue
		}
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for i, m := range goProgram.FindAllStringSubmatch(string(text), -1) {
			name := fmt.Sprintf("%s_%d", strings.TrimSuffix(filepath.Base(file), ".md"), i)
			require.NoError(t, os.Mkdir(filepath.Join(dir, name), 0o755))
			code := strings.Replace(m[1], "package main\n", "package program\n", 1)
			code = strings.Replace(code, "\nfunc main() {", "\nfunc Main() {", 1)
			require.NoError(t, os.WriteFile(filepath.Join(dir, name, "program.go"), []byte(code), 0o644))
			programs = append(programs, program{name, m[1], m[2]})
		}
	}
	require.GreaterOrEqual(t, len(programs), 7)
	// One program that is all of them, since linking each takes longer than all
	// the rest. TestDocsCompile reads them as they are.
	var all strings.Builder
	all.WriteString("package main\n\nimport (\n\t\"os\"\n\n")
	for i, p := range programs {
		fmt.Fprintf(&all, "\tp%d \"example.com/importer/%s\"\n", i, p.name)
	}
	all.WriteString(")\n\nfunc main() {\n\tname := os.Args[1]\n\tos.Args = os.Args[:1]\n\tswitch name {\n")
	for i, p := range programs {
		fmt.Fprintf(&all, "\tcase %q:\n\t\tp%d.Main()\n", p.name, i)
	}
	all.WriteString("\t}\n}\n")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "main.go"), []byte(all.String()), 0o644))
	bin := filepath.Join(dir, "programs")
	build := exec.Command("go", "build", "-ldflags=-s -w", "-o", bin, ".")
	build.Dir = dir
	build.Env = append(os.Environ(), "GOFLAGS=", "GOWORK=off")
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)
	for _, p := range programs {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			if strings.Contains(p.code, `"python3"`) {
				needs.Programs(t, "python3")
			}
			require.NotEmpty(t, p.output, "the document shows no output")
			srv := sandboxtest.New(t, nil)
			if strings.Contains(p.code, "Ports:") && srv.Mode() == sandboxtest.Folder {
				needs.Missing(t, "sandboxes with networks of their own, so that nobody else has the port")
			}
			cmd := exec.CommandContext(t.Context(), bin, p.name)
			cmd.Dir = t.TempDir()
			cmd.Env = append(os.Environ(), srv.Environ()...)
			var stderr strings.Builder
			cmd.Stderr = &stderr
			out, err := cmd.Output()
			require.NoError(t, err, "%s", &stderr)
			assert.Equal(t, varying(p.output), varying(string(out)))
		})
	}
}

// varying replaces what varies between runs: command IDs and durations.
func varying(output string) string {
	output = regexp.MustCompile(`\bc[0-9a-f]{32}\b`).ReplaceAllString(output, "ID")
	return regexp.MustCompile(`\b[0-9.]+(ms|s)\b`).ReplaceAllString(output, "TIME")
}

// TestDocsBeginWithPrograms: every page begins with something that can be run,
// and the commands on a page refer to things that exist.
func TestDocsBeginWithPrograms(t *testing.T) {
	t.Parallel()
	atRoot(t)
	files := pages(t)
	require.Greater(t, len(files), 10)
	first := regexp.MustCompile("(?ms)^```(\\w*)\n(.*?)^```$")
	testRun := regexp.MustCompile(`-(?:run|bench) '?([A-Za-z|]+)`)
	mainPackage := regexp.MustCompile(`go run (?:-C (\S+) )?(\./\S+)`)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		block := first.FindStringSubmatchIndex(string(text))
		if !assert.NotNil(t, block, "%s has no program: begin with one that can be run", file) {
			continue
		}
		before := string(text[:block[0]])
		assert.Less(t, strings.Count(before, "\n"), 16, "%s has its first program after 15 lines: people look before they read, so move it up", file)
		language, code := string(text[block[2]:block[3]]), string(text[block[4]:block[5]])
		switch language {
		case "go":
			assert.Regexp(t, `^package (main|\w+_test)\n`, code, "%s begins with a fragment: begin with a whole program, whose output is compared", file)
		case "sh":
			for _, m := range testRun.FindAllStringSubmatch(code, -1) {
				for name := range strings.SplitSeq(m[1], "|") {
					assert.True(t, strings.Contains(testFunctions(t), "func "+name+"("), "%s runs %s, which there is not: name the test as it is called now", file, name)
				}
			}
			for _, m := range mainPackage.FindAllStringSubmatch(code, -1) {
				assert.FileExists(t, filepath.Join(m[1], m[2], "main.go"), "%s runs a program that there is not", file)
			}
		default:
			t.Errorf("%s begins with a block of %q: begin with go or sh", file, language)
		}
	}
}

// testFunctions returns the code of all tests.
var testFunctions = func() func(t *testing.T) string {
	read := sync.OnceValues(func() (string, error) {
		var code strings.Builder
		err := filepath.WalkDir(".", func(path string, d os.DirEntry, err error) error {
			if err == nil && strings.HasSuffix(path, "_test.go") {
				text, readErr := os.ReadFile(path)
				code.Write(text)
				return readErr
			}
			return err
		})
		return code.String(), err
	})
	return func(t *testing.T) string {
		t.Helper()
		code, err := read()
		require.NoError(t, err)
		return code
	}
}()

// TestDocsLinks: links within the repository have a target, including headings,
// and every page of docs is in the index.
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
	test := regexp.MustCompile("\\[`(Test\\w+)`\\]\\((\\S+)\\)")
	fenced := regexp.MustCompile("(?ms)^```.*?^```$")
	links, linked := 0, map[string]bool{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, m := range test.FindAllStringSubmatch(string(text), -1) {
			there, err := os.ReadFile(filepath.Join(filepath.Dir(file), m[2]))
			require.NoError(t, err)
			assert.True(t, strings.Contains(string(there), "func "+m[1]+"("), "%s links to %s for %s, which is not there: link to its file", file, m[2], m[1])
		}
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
			if _, err := os.Stat(target); !assert.NoError(t, err, "%s links to %s, which there is not", file, m[1]) || heading == "" {
				continue
			}
			there, err := os.ReadFile(target)
			require.NoError(t, err)
			assert.Contains(t, headings(string(there)), heading, "%s links to %s, which there is not", file, m[1])
		}
	}
	assert.Greater(t, links, 50)
	for _, page := range pages(t) {
		assert.True(t, linked[page] || page == filepath.Join("docs", "README.md"), "%s is not in docs/README.md, where people look for it: add a line", page)
	}
}

// headings returns the anchors that GitHub generates for the headings of a
// document.
func headings(text string) []string {
	var names []string
	for _, m := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(text, -1) {
		name := strings.ToLower(strings.TrimSpace(m[1]))
		name = regexp.MustCompile(`[^\p{L}\p{N} _-]`).ReplaceAllString(name, "")
		names = append(names, strings.ReplaceAll(name, " ", "-"))
	}
	return names
}

// TestDocsNameTests: every test that the documentation names exists.
func TestDocsNameTests(t *testing.T) {
	t.Parallel()
	atRoot(t)
	files := pages(t)
	named := 0
	for _, file := range append(files, "README.md") {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, m := range regexp.MustCompile("`((?:Test|Benchmark)[A-Z]\\w*)`").FindAllStringSubmatch(string(text), -1) {
			named++
			assert.True(t, strings.Contains(testFunctions(t), "func "+m[1]+"("), "%s names %s, which there is not: name the test as it is called now", file, m[1])
		}
	}
	assert.Greater(t, named, 5)
}

// TestDocsNameSymbols: what the documentation calls a field or a method of one of
// the module's types, is, and what a comment links to exists.
func TestDocsNameSymbols(t *testing.T) {
	t.Parallel()
	atRoot(t)
	packages := map[string]string{"": "."}
	for _, dir := range []string{"agent", "auth", "observe", "outputs", "pool", "preview", "proxy", "proxy/proxytest", "sandboxtest", "terminal", "tunnel", "durable", "durable/embedded", "durable/session", "otelsandbox"} {
		packages[filepath.Base(dir)] = dir
	}
	symbols := goSymbols(t, packages)
	readmes, err := filepath.Glob("examples/*/README.md")
	require.NoError(t, err)
	files := append(append(pages(t), "README.md", "CONTRIBUTING.md", "SECURITY.md", "docs/skill/SKILL.md"), readmes...)
	named := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, m := range regexp.MustCompile("`(?:([a-z]+)\\.)?([A-Z]\\w+)\\.([A-Z]\\w+)(?:\\(.*?\\))?`").FindAllStringSubmatch(string(text), -1) {
			ours, found := false, false
			for pkg := range packages {
				if m[1] != "" && m[1] != pkg && (m[1] != "sandbox" || pkg != "") {
					continue
				}
				prefix := strings.TrimPrefix(pkg+".", ".")
				ours = ours || symbols[prefix+m[2]]
				found = found || symbols[prefix+m[2]+"."+m[3]]
			}
			if ours {
				named++
				assert.True(t, found, "%s names %s.%s, which there is not", file, m[2], m[3])
			}
		}
	}
	assert.Greater(t, named, 50)
	linked := 0
	for pkg, dir := range packages {
		sources, err := filepath.Glob(filepath.Join(dir, "*.go"))
		require.NoError(t, err)
		for _, file := range sources {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			for _, m := range regexp.MustCompile(`(?m)^\s*//.*`).FindAllString(string(text), -1) {
				for _, link := range regexp.MustCompile(`\[\*?(?:([a-z]+)\.)?([A-Z]\w*(?:\.[A-Z]\w*)?)\](?:[^(:]|$)`).FindAllStringSubmatch(m, -1) {
					to := pkg
					if link[1] != "" {
						to = strings.TrimSuffix(link[1], "sandbox")
					}
					if _, ours := packages[to]; ours {
						linked++
						assert.True(t, symbols[strings.TrimPrefix(to+".", ".")+link[2]], "%s links to %s, which there is not", file, link[0])
					}
				}
			}
		}
	}
	assert.Greater(t, linked, 500)
}

// importingModule creates a module in a temporary folder that imports this one,
// with the same requirements, so that nothing needs to be downloaded.
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

// TestSecurityModel: the tests that docs/security.md and docs/isolation.md name
// exist, and each promise of the latter has one.
func TestSecurityModel(t *testing.T) {
	t.Parallel()
	atRoot(t)
	text, err := os.ReadFile(filepath.Join("docs", "security.md"))
	require.NoError(t, err)
	promises, err := os.ReadFile(filepath.Join("docs", "isolation.md"))
	require.NoError(t, err)
	for line := range strings.Lines(string(promises)) {
		if strings.HasPrefix(line, "| ") && !strings.HasPrefix(line, "| ---") && !strings.HasPrefix(line, "| a sandbox can't") {
			assert.Regexp(t, "`(Test|Fuzz)\\w+`", line, "docs/isolation.md: a promise without a test: name one")
		}
	}
	text = append(text, promises...)
	defined := map[string]bool{}
	function := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)
	require.NoError(t, filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(name, "_test.go") {
			return err
		}
		code, err := os.ReadFile(name)
		for _, m := range function.FindAllStringSubmatch(string(code), -1) {
			defined[m[1]] = true
		}
		return err
	}))
	named := regexp.MustCompile("`((?:Test|Fuzz)\\w+)`").FindAllStringSubmatch(string(text), -1)
	require.Greater(t, len(named), 50)
	for _, m := range named {
		assert.True(t, defined[m[1]], "docs/security.md or docs/isolation.md names %s, which there is not: name the test as it is called now", m[1])
	}
}

// TestDocsLength: the README fits 150 lines and a page 1,400 words, so that
// they are read.
func TestDocsLength(t *testing.T) {
	t.Parallel()
	atRoot(t)
	text, err := os.ReadFile("README.md")
	require.NoError(t, err)
	assert.LessOrEqual(t, strings.Count(string(text), "\n"), 150, "lines of the README: what a newcomer does not need belongs into docs")
	code, marks := regexp.MustCompile("(?s)```.*?```"), regexp.MustCompile(`\||-{3,}`)
	for _, file := range append(pages(t), "CONTRIBUTING.md", "perf/README.md") {
		if file == "docs/maintainers/platform.md" || file == "docs/maintainers/differences.md" {
			continue // tables to look things up
		}
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		words := strings.Fields(marks.ReplaceAllString(code.ReplaceAllString(string(text), ""), " "))
		assert.LessOrEqual(t, len(words), 1400, "words of %s, without code: cut what repeats, or split the page", file)
	}
}

// TestDocsTables: each row of a table has as many cells as its heading.
func TestDocsTables(t *testing.T) {
	t.Parallel()
	atRoot(t)
	for _, file := range append(pages(t), "README.md") {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		cells := 0
		for line := range strings.Lines(string(text)) {
			if !strings.HasPrefix(line, "|") {
				cells = 0
				continue
			}
			// A bar in code ends a cell, too, unless it is escaped.
			here := strings.Count(strings.ReplaceAll(line, `\|`, ""), "|")
			if cells == 0 {
				cells = here
			}
			assert.Equal(t, cells, here, "%s has a row with more or fewer cells than its heading, which is shown cut; write \\| for a bar in a cell: %s", file, line)
		}
	}
}
