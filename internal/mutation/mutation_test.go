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
