package main

import (
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestBugs keeps bugs.txt in step with the code: a bug that can't be put in, or
// that names a test that is gone, holds nothing.
func TestBugs(t *testing.T) {
	bugs, err := readBugs("bugs.txt")
	require.NoError(t, err)
	assert.GreaterOrEqual(t, len(bugs), 60)
	for _, b := range bugs {
		_, _, err := b.find(filepath.Join("..", ".."))
		assert.NoError(t, err)
		test, sub, _ := strings.Cut(b.by[1], "/")
		files, err := filepath.Glob(filepath.Join("..", "..", b.by[0], "*_test.go"))
		require.NoError(t, err)
		var code strings.Builder
		for _, file := range files {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			code.Write(text)
		}
		assert.Regexp(t, `func Test\w*`+strings.TrimPrefix(test, "Test")+`\w*\(`, code.String(), "%s: %s is in no file of %s", b.name, test, b.by[0])
		if b.by[0] == "./internal/fields" && test == "TestCalls" {
			call, _, _ := strings.Cut(sub, "/")
			assert.True(t, strings.Contains(code.String(), `name: "`+call+`"`), "%s: no row of %s", b.name, b.by[1])
		}
	}
}

// TestLists keeps the lists of rows in step with the code: rows whose
// code is gone hold nothing, and rows that the seed did not choose mean little.
func TestLists(t *testing.T) {
	t.Chdir(filepath.Join("..", ".."))
	for name, least := range map[string]int{"guards": 150, "security": 60, "edges": 30} {
		l := lists[name]
		file := filepath.Join("internal", "mutation", name+".txt")
		rows, same, err := l.read(file)
		require.NoError(t, err)
		assert.True(t, same, "the rows of %s are not those of its first line", file)
		there, gone, err := l.find(file, rows)
		require.NoError(t, err)
		assert.GreaterOrEqual(t, len(there), least, "the code of some rows of %s is gone; choose others: go run ./internal/mutation list %s\n%s", file, name, strings.Join(gone, "\n"))
		if len(gone) > 0 {
			_, err := l.load(file)
			assert.ErrorContains(t, err, "gone")
		}
	}
}

// TestGone: a row whose code is gone is not passed over.
func TestGone(t *testing.T) {
	l := &list{name: "gone", hearts: []heart{code(".", ".", "main.go", 2)}}
	file := filepath.Join(t.TempDir(), "gone.txt")
	require.NoError(t, os.WriteFile(filepath.Join(filepath.Dir(file), "bugs.txt"), nil, 0o600))
	all, err := l.sites(0)
	require.NoError(t, err)
	rows := []string{all[0].row, "main.go run if not: what was here before"}
	text := l.header(rows) + "\n" + strings.Join(rows, "\n") + "\n"
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	_, err = l.load(file)
	assert.ErrorContains(t, err, "the code of 1 rows is gone")

	require.NoError(t, l.write(file))
	chosen, err := l.load(file)
	require.NoError(t, err)
	require.Len(t, chosen, 2)
	assert.Equal(t, all[0].row, chosen[0].row, "what is there stays")

	require.NoError(t, os.WriteFile(file, []byte(text[:len(text)-1]+" else\n"), 0o600))
	_, same, err := l.read(file)
	require.NoError(t, err)
	assert.False(t, same, "a row was changed by hand")
}

// TestKinds names what can be broken in a function.
func TestKinds(t *testing.T) {
	const code = "package p\nfunc f(a, b bool) error {\n\tif a {\n\t\treturn errors.New(\"a\")\n\t}\n\tswitch {\n\tcase b:\n\t\treturn nil\n\t}\n\tx++\n\treturn nil\n}\n"
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, "p.go", code, 0)
	require.NoError(t, err)
	var rows []string
	for _, s := range inFile(0, "p.go", fset, file) {
		rows = append(rows, s.row)
		assert.Equal(t, strings.HasSuffix(s.row, ": a"), s.refuses, s.row)
	}
	assert.ElementsMatch(t, []string{"p.go f if not: a", "p.go f let through: a", "p.go f let through: b", "p.go f leave out: x++"}, rows)
}

// TestInsert breaks a condition within a condition, where what is put in around
// both meets.
func TestInsert(t *testing.T) {
	const code = "package p\nfunc f(a, b, c bool) {\n\tif a && (b || c) {\n\t\tg()\n\t}\n}\n"
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, "p.go", code, 0)
	require.NoError(t, err)
	var list []insertion
	for _, s := range inFile(0, "p.go", fset, file) {
		for _, in := range s.at {
			in.text = strings.ReplaceAll(in.text, "%d", "1")
			list = append(list, in)
		}
	}
	got := string(insert([]byte(code), list))
	assert.Equal(t, "package p\nfunc f(a, b, c bool) {\n\tif mutationNot(1, (mutationOn(1) || a) && (mutationOn(1) || "+
		"((!mutationOn(1) && (b)) || (!mutationOn(1) && (c))))) {\n\t\tif !mutationOn(1) { g() }\n\t}\n}\n", got)
}
