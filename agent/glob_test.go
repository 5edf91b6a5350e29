package agent_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/internal/test/needs"
)

// TestGlobPatterns: glob understands a pattern, or the result says that it does not. A result
// is never empty because glob reads a pattern differently from other programs.
func TestGlobPatterns(t *testing.T) {
	t.Parallel()
	needs.GNU(t)
	d := newTools(t, nil)
	d.ok("bash", args{"command": `mkdir -p src/deep lib .git empty; touch top.go src/a.ts src/b.tsx src/deep/c.ts 'src/{x}.ts' lib/d.ts .git/config; ln -s src ln; ln -s top.go link.go`})
	cwd := d.sb.Cwd()
	for _, c := range []struct {
		pattern, path string
		files         []string // nil: the result says why there are none
		says          string
	}{
		{"**/*.{ts,tsx}", "", []string{"lib/d.ts", "src/a.ts", "src/b.tsx", "src/deep/c.ts", "src/{x}.ts"}, "5 files."},
		{`{src/\{x\}.ts,src/{a.{ts,js},deep/**}}`, "", []string{"src/a.ts", "src/deep/c.ts", "src/{x}.ts"}, "3 files."},
		{cwd + "/{src,lib}/*.ts", "", []string{"lib/d.ts", "src/a.ts", "src/{x}.ts"}, "3 files below " + cwd + "."},
		{cwd + "/src/*.ts", "", []string{"a.ts", "{x}.ts"}, "2 files below " + cwd + "/src."},
		{"./src/{x}.ts", "", []string{"src/{x}.ts"}, "1 files."},
		{"../*.go", "src", []string{"link.go", "top.go"}, "2 files."},
		{"*.ts", "ln", []string{"a.ts", "deep/c.ts", "{x}.ts"}, "3 files below ln."},
		{"src", "", nil, "1 directories match: add /**"},
		{".git/*", "", nil, ".git is left out"},
		{"/none/*.go", "", nil, "/none: file does not exist"},
		{"*", "link.go", nil, "link.go is a file: give its directory as path"},
		{"**/*.@(ts|tsx)", "", nil, "0 files. Patterns such as @(a|b) and !(a) are not understood"},
		// Invalid patterns.
		{"*/../*.go", "", nil, "leads out of the directory"},
		{"{" + cwd + ",x}/*.go", "", nil, "leads out of the directory"},
		{"{1..3}.go", "", nil, "a sequence such as {1..3}, which is not understood"},
		{strings.Repeat("{a,b}", 8), "", nil, "more than 100 patterns"},
		{"[", "", nil, "not valid"},
	} {
		a := args{"pattern": c.pattern}
		if c.path != "" {
			a["path"] = c.path
		}
		text := d.try("glob", a).Text
		assert.Contains(t, text, c.says, "%s in %q", c.pattern, c.path)
		var files []string
		if _, list, ok := strings.Cut(text, "<sandbox-data>\n"); ok {
			files = strings.Split(strings.TrimSuffix(list, "\n</sandbox-data>"), "\n")
		}
		assert.Equal(t, c.files, files, "%s in %q", c.pattern, c.path)
	}
	assert.Contains(t, d.refused("list_files", args{"path": "top.go"}), "not a directory")
	assert.Contains(t, d.refused("list_files", args{"path": "none"}), "does not exist")
	assert.Contains(t, d.refused("grep", args{"pattern": "x", "glob": "../*"}), "leads out of the directory")
	assert.Equal(t, "0 matches. No file matches glob. Patterns such as @(a|b) and !(a) are not understood: use {a,b}.", d.ok("grep", args{"pattern": "x", "glob": "*.@(go)"}))
	d.ok("bash", args{"command": "truncate -s 5000000 large.txt; echo here >locked.txt; chmod 0 locked.txt"})
	assert.Equal(t, "0 matches. 1 files could not be read. 1 files of more than 4 MiB were not searched: use bash for them. "+
		"Binary files, symbolic links and .git are not searched.", d.ok("grep", args{"pattern": "here"}))
}

// TestGlobAgainstGit: patterns with a slash find what Git's glob pathspecs do.
func TestGlobAgainstGit(t *testing.T) {
	needs.Long(t, "the patterns are those of package filefilter, which has tests of its own")
	t.Parallel()
	needs.GNU(t)
	needs.Programs(t, "git")
	d := newTools(t, nil)
	dir := t.TempDir()
	names := []string{"a", "b.go", "x/a", "x/b.go", "x/y/a", "x/y/b.go", "x/y/z/c.ts", ".d/e", "x/.f", "x[1]/a", "x*y/a"}
	for _, name := range names {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
	}
	require.NoError(t, d.sb.FS().UploadDir(t.Context(), dir, ".", nil))
	git := func(a ...string) string {
		cmd := exec.Command("git", append([]string{"-C", dir, "-c", "core.quotePath=false"}, a...)...)
		cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null")
		out, err := cmd.Output()
		require.NoError(t, err, "%v", a)
		return string(out)
	}
	git("init", "-q")
	git("add", "-A")
	for _, pattern := range []string{"x/*", "x/**", "**/a", "**/*.go", "x/**/a", "x/*/a", "*/*.go", "x/?", "**/.f", ".d/*", "x/y/**/c.ts", `x\[1\]/a`, "x[*]y/a", "x/[a-b]*", "x/[^a]*", "**/y/**", "*/y/*"} {
		var want []string
		for name := range strings.FieldsSeq(git("ls-files", "--", ":(glob)"+pattern)) {
			want = append(want, name)
		}
		text := d.ok("glob", args{"pattern": pattern})
		var files []string
		if _, list, ok := strings.Cut(text, "<sandbox-data>\n"); ok {
			files = strings.Split(strings.TrimSuffix(list, "\n</sandbox-data>"), "\n")
		}
		slices.Sort(want)
		slices.Sort(files)
		assert.Equal(t, want, files, pattern)
	}
}
