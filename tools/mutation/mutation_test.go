package main

import (
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func must[T any](v T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// TestBugs keeps bugs.txt in step with the code: a bug that can't be put in, or
// that names a test that is gone, holds nothing.
func TestBugs(t *testing.T) {
	bugs := must(readBugs("bugs.txt"))(t)
	if len(bugs) < 60 {
		t.Errorf("only %d bugs", len(bugs))
	}
	for _, b := range bugs {
		if _, _, err := b.find(filepath.Join("..", "..")); err != nil {
			t.Error(err)
		}
		test, sub, _ := strings.Cut(b.by[1], "/")
		var code strings.Builder
		for _, file := range must(filepath.Glob(filepath.Join("..", "..", b.by[0], "*_test.go")))(t) {
			code.Write(must(os.ReadFile(file))(t))
		}
		if !regexp.MustCompile(`func Test\w*` + strings.TrimPrefix(test, "Test") + `\w*\(`).MatchString(code.String()) {
			t.Errorf("%s: %s is in no file of %s", b.name, test, b.by[0])
		}
		if b.by[0] == "./internal/test/fields" && test == "TestCalls" {
			call, _, _ := strings.Cut(sub, "/")
			if !strings.Contains(code.String(), `name: "`+call+`"`) {
				t.Errorf("%s: no row of %s", b.name, b.by[1])
			}
		}
	}
}

// TestLists keeps the lists of rows in step with the code: rows whose
// code is gone hold nothing, and rows that the seed did not choose mean little.
func TestLists(t *testing.T) {
	t.Chdir(filepath.Join("..", ".."))
	for name, least := range map[string]int{"guards": 150, "security": 60, "edges": 30} {
		l := lists[name]
		file := filepath.Join("tools", "mutation", name+".txt")
		rows, same, err := l.read(file)
		if err != nil {
			t.Fatal(err)
		}
		if !same {
			t.Errorf("the rows of %s are not those of its first line", file)
		}
		there, gone, err := l.find(file, rows)
		if err != nil {
			t.Fatal(err)
		}
		if len(there) < least {
			t.Errorf("the code of some rows of %s is gone; choose others: go -C tools/mutation run . list %s\n%s", file, name, strings.Join(gone, "\n"))
		}
		if len(gone) > 0 {
			if _, err := l.load(file); err == nil || !strings.Contains(err.Error(), "gone") {
				t.Errorf("%s is loaded without %d rows: %v", file, len(gone), err)
			}
		}
	}
}

// TestGone: a row whose code is gone is not passed over.
func TestGone(t *testing.T) {
	l := &list{name: "gone", hearts: []heart{code(".", ".", "main.go", 2)}}
	file := filepath.Join(t.TempDir(), "gone.txt")
	write := func(file, text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(filepath.Join(filepath.Dir(file), "bugs.txt"), "")
	all := must(l.sites(0))(t)
	rows := []string{all[0].row, "main.go run if not: what was here before"}
	text := l.header(rows) + "\n" + strings.Join(rows, "\n") + "\n"
	write(file, text)
	if _, err := l.load(file); err == nil || !strings.Contains(err.Error(), "the code of 1 rows is gone") {
		t.Error(err)
	}

	if err := l.write(file); err != nil {
		t.Fatal(err)
	}
	chosen := must(l.load(file))(t)
	if len(chosen) != 2 || chosen[0].row != all[0].row {
		t.Errorf("what is there stays, %s: %v", all[0].row, chosen)
	}

	write(file, text[:len(text)-1]+" else\n")
	if _, same, err := l.read(file); err != nil || same {
		t.Errorf("a row was changed by hand: %v", err)
	}
}

// TestKinds names what can be broken in a function.
func TestKinds(t *testing.T) {
	const code = "package p\nfunc f(a, b bool) error {\n\tif a {\n\t\treturn errors.New(\"a\")\n\t}\n\tswitch {\n\tcase b:\n\t\treturn nil\n\t}\n\tx++\n\treturn nil\n}\n"
	fset := token.NewFileSet()
	file := must(parser.ParseFile(fset, "p.go", code, 0))(t)
	var rows []string
	for _, s := range inFile(0, "p.go", fset, file) {
		rows = append(rows, s.row)
		if s.refuses != strings.HasSuffix(s.row, ": a") {
			t.Errorf("%s refuses: %v", s.row, s.refuses)
		}
	}
	slices.Sort(rows)
	if want := []string{"p.go f if not: a", "p.go f leave out: x++", "p.go f let through: a", "p.go f let through: b"}; !slices.Equal(rows, want) {
		t.Errorf("%q, want %q", rows, want)
	}
}

// TestInsert breaks a condition within a condition, where what is put in around
// both meets.
func TestInsert(t *testing.T) {
	const code = "package p\nfunc f(a, b, c bool) {\n\tif a && (b || c) {\n\t\tg()\n\t}\n}\n"
	fset := token.NewFileSet()
	file := must(parser.ParseFile(fset, "p.go", code, 0))(t)
	var list []insertion
	for _, s := range inFile(0, "p.go", fset, file) {
		for _, in := range s.at {
			in.text = strings.ReplaceAll(in.text, "%d", "1")
			list = append(list, in)
		}
	}
	want := "package p\nfunc f(a, b, c bool) {\n\tif mutationNot(1, (mutationOn(1) || a) && (mutationOn(1) || " +
		"((!mutationOn(1) && (b)) || (!mutationOn(1) && (c))))) {\n\t\tif !mutationOn(1) { g() }\n\t}\n}\n"
	if got := string(insert([]byte(code), list)); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
