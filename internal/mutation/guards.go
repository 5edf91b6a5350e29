package main

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/printer"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// seed chooses the rows of guards.txt among all conditions and statements.
const seed = "2026-11-22"

// heart is code that keeps a promise, and the tests that hold it, nearest first.
type heart struct {
	module string // the folder of the module that has it
	dir    string // below the module
	files  string // a pattern
	rows   int    // how many guards are chosen
	tests  [][2]string
}

// The tests that hold many hearts: what every call does, and what is promised
// under faults, which takes minutes.
var (
	everyCall   = [2]string{"./internal/fields", "."}
	reliability = [2]string{"./internal/reliability", "."}
)

var hearts = []heart{
	{".", "internal/api", "*.go", 30, [][2]string{{"./internal/api", "."}, everyCall, reliability}},
	{".", "internal/logstream", "*.go", 24, [][2]string{{"./internal/logstream", "."}, reliability}},
	{".", "internal/untar", "untar.go", 14, [][2]string{{"./internal/untar", "."}}},
	{".", "proxy", "*.go", 20, [][2]string{{"./proxy", "."}}},
	{".", "auth", "*.go", 14, [][2]string{{"./auth", "."}}},
	{".", "sandboxtest", "door.go", 6, [][2]string{{"./sandboxtest", "Door|Clients|Names|Refus"}}},
	{".", ".", "launch.go", 8, [][2]string{{".", "Command|Kill|Start"}, reliability}},
	{".", ".", "*resume.go", 8, [][2]string{{".", "Resume|Hook"}, reliability}},
	{".", ".", "stdin.go", 8, [][2]string{{".", "Stdin"}, reliability}},
	{".", ".", "filewriter.go", 8, [][2]string{{".", "Writer|Append|CreateStream|CreateNames|Upload"}, reliability}},
	{".", ".", "getorcreate.go", 8, [][2]string{{".", "OnCreate|GetOrCreate|Hook"}, reliability}},
	{".", ".", "process.go", 6, [][2]string{{".", "Cmd|Process"}, reliability}},
	{".", ".", "download.go", 8, [][2]string{{".", "Download|Transfer|RoundTrip"}, reliability}},
	{"cmd/sandbox", "internal/cli", "*.go", 14, [][2]string{{"./internal/cli", "."}, {".", "."}}},
}

// site is a place of the code that can be broken.
type site struct {
	heart int
	file  string // below the module
	row   string // names the site without its position, which other changes move
	at    []insertion
}

func (s site) String() string { return s.row }

// insertion is text put in at one end of a node; %d is the number of the row.
type insertion struct {
	offset, otherEnd int
	text             string
}

// sites returns what can be broken in the files of a heart.
func sites(number int) ([]site, error) {
	h := hearts[number]
	files, err := filepath.Glob(filepath.Join(h.module, h.dir, h.files))
	if err != nil {
		return nil, err
	}
	var out []site
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") || strings.HasSuffix(file, "_windows.go") || strings.HasSuffix(file, "_other.go") {
			continue
		}
		fset := token.NewFileSet()
		parsed, err := parser.ParseFile(fset, file, nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		out = append(out, inFile(number, file, fset, parsed)...)
	}
	return out, nil
}

func inFile(heart int, name string, fset *token.FileSet, file *ast.File) []site {
	f := finder{heart: heart, file: name, fset: fset, seen: map[string]int{}}
	for _, decl := range file.Decls {
		if fn, ok := decl.(*ast.FuncDecl); ok && fn.Body != nil {
			f.function = fn.Name.Name
			ast.Inspect(fn.Body, f.visit)
		}
	}
	return f.found
}

type finder struct {
	heart          int
	file, function string
	fset           *token.FileSet
	seen           map[string]int
	found          []site
}

// add notes that the text of a node is put between two others.
func (f *finder) add(kind string, n ast.Node, before, after string) {
	var text bytes.Buffer
	if err := printer.Fprint(&text, f.fset, n); err != nil {
		panic(err) // what was parsed can be printed
	}
	line, _, more := strings.Cut(text.String(), "\n")
	if more {
		line += " …"
	}
	row := fmt.Sprintf("%s %s %s: %s", filepath.ToSlash(f.file), f.function, kind, line)
	if f.seen[row]++; f.seen[row] > 1 {
		row += fmt.Sprintf(" (%d)", f.seen[row])
	}
	from, to := f.fset.Position(n.Pos()).Offset, f.fset.Position(n.End()).Offset
	f.found = append(f.found, site{f.heart, f.file, row, []insertion{{from, to, before}, {to, from, after}}})
}

func (f *finder) visit(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.IfStmt:
		f.add("if not", n.Cond, "mutationNot(%d, ", ")")
	case *ast.BinaryExpr:
		switch n.Op {
		case token.LAND:
			f.add("without", n.X, "(mutationOn(%d) || ", ")")
			f.add("without", n.Y, "(mutationOn(%d) || ", ")")
		case token.LOR:
			f.add("without", n.X, "(!mutationOn(%d) && (", "))")
			f.add("without", n.Y, "(!mutationOn(%d) && (", "))")
		}
	case *ast.BlockStmt:
		f.statements(n.List)
	case *ast.CaseClause:
		f.statements(n.Body)
	case *ast.CommClause:
		f.statements(n.Body)
	}
	return true
}

// statements notes those that can be left out.
func (f *finder) statements(list []ast.Stmt) {
	for _, s := range list {
		switch s := s.(type) {
		case *ast.ExprStmt, *ast.IncDecStmt, *ast.SendStmt:
		case *ast.AssignStmt:
			if s.Tok == token.DEFINE || blank(s.Lhs) {
				continue
			}
		default:
			continue
		}
		f.add("leave out", s, "if !mutationOn(%d) { ", " }")
	}
}

func blank(list []ast.Expr) bool {
	return !slices.ContainsFunc(list, func(e ast.Expr) bool {
		name, ok := e.(*ast.Ident)
		return !ok || name.Name != "_"
	})
}

// choose returns the guards of a heart that the seed chooses.
func choose(number int) ([]site, error) {
	all, err := sites(number)
	if err != nil {
		return nil, err
	}
	rank := func(s site) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(seed+s.row))) }
	slices.SortFunc(all, func(a, b site) int { return strings.Compare(rank(a), rank(b)) })
	return all[:min(len(all), hearts[number].rows)], nil
}

func writeGuards(file string) error {
	var rows []string
	for i := range hearts {
		list, err := choose(i)
		if err != nil {
			return err
		}
		for _, s := range list {
			rows = append(rows, s.row)
		}
	}
	text := strings.Join(rows, "\n") + "\n"
	head := fmt.Sprintf("# %d guards, chosen by the seed %q; SHA-256 of the rows: %x\n", len(rows), seed, sha256.Sum256([]byte(text)))
	fmt.Print(head)
	return os.WriteFile(file, []byte(head+text), 0o644)
}

// readGuards returns the sites of the rows of a file, and reports rows whose
// code is gone.
func readGuards(file string) ([]site, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	there := map[string]site{}
	for i := range hearts {
		all, err := sites(i)
		if err != nil {
			return nil, err
		}
		for _, s := range all {
			there[s.row] = s
		}
	}
	var rows []site
	for line := range strings.SplitSeq(strings.TrimSpace(string(text)), "\n") {
		if strings.HasPrefix(line, "#") {
			continue
		}
		s, ok := there[line]
		if !ok {
			fmt.Printf("gone\t\t%s\n", line)
			continue
		}
		rows = append(rows, s)
	}
	return rows, nil
}

const switches = `
import (
	"os"
	"strconv"
)

var mutation, _ = strconv.Atoi(os.Getenv("SANDBOX_MUTATION"))

func mutationOn(n int) bool { return mutation == n }

func mutationNot(n int, v bool) bool { return v != mutationOn(n) }
`

// tryGuards builds each test once with all breaks of its heart, which an
// environment variable turns on one at a time.
func tryGuards(work string, rows []site, near bool, limit time.Duration) error {
	if near {
		for i := range hearts {
			hearts[i].tests = slices.DeleteFunc(hearts[i].tests, func(t [2]string) bool { return t == reliability })
		}
	}
	binaries := map[string]string{}
	for i, h := range hearts {
		mine := slices.DeleteFunc(slices.Clone(rows), func(s site) bool { return s.heart != i })
		if len(mine) == 0 {
			continue
		}
		dir := filepath.Join(work, fmt.Sprint(i))
		if err := os.Mkdir(dir, 0o700); err != nil {
			return err
		}
		overlay, err := instrument(dir, h, mine, rows)
		if err != nil {
			return err
		}
		for _, test := range h.tests {
			binary := filepath.Join(dir, strings.NewReplacer("/", "_", ".", "").Replace(test[0])+".test")
			cmd := exec.Command("go", "test", "-c", "-o", binary, "-overlay", overlay, test[0])
			cmd.Dir = h.module
			if out, err := cmd.CombinedOutput(); err != nil {
				return fmt.Errorf("%s with the breaks of %s: %s", test[0], h.dir, out)
			}
			binaries[fmt.Sprint(i, test[0])] = binary
			if outcome, err := h.tryOne(binary, test, 5*limit, 0); err != nil || outcome != survived {
				return errors.Join(err, fmt.Errorf("%s %s fails without a break", test[0], test[1]))
			}
		}
	}
	return report(rows, func(s site) (string, error) {
		h := hearts[s.heart]
		for _, test := range h.tests {
			outcome, err := h.tryOne(binaries[fmt.Sprint(s.heart, test[0])], test, limit, 1+slices.IndexFunc(rows, func(r site) bool { return r.row == s.row }))
			if err != nil || outcome != survived {
				return outcome, err
			}
		}
		return survived, nil
	})
}

func (h heart) tryOne(binary string, test [2]string, limit time.Duration, n int) (string, error) {
	return runTests(binary, filepath.Join(h.module, test[0]), test[1], limit, []string{fmt.Sprint("SANDBOX_MUTATION=", n)})
}

// instrument writes the files of a heart with the switches of its rows, whose
// numbers are those of their places in all rows.
func instrument(dir string, h heart, mine, rows []site) (string, error) {
	files := map[string][]byte{}
	inserted := map[string][]insertion{}
	for _, s := range mine {
		n := 1 + slices.IndexFunc(rows, func(r site) bool { return r.row == s.row })
		for _, in := range s.at {
			if strings.Contains(in.text, "%d") {
				in.text = fmt.Sprintf(in.text, n)
			}
			inserted[s.file] = append(inserted[s.file], in)
		}
	}
	for file, list := range inserted {
		text, err := os.ReadFile(file)
		if err != nil {
			return "", err
		}
		files[file] = insert(text, list)
	}
	name, err := packageName(mine[0].file)
	if err != nil {
		return "", err
	}
	files[filepath.Join(h.module, h.dir, "zz_mutation.go")] = []byte("package " + name + "\n" + switches)
	return writeOverlay(dir, files)
}

// insert puts texts around nodes, of which some contain others.
func insert(text []byte, list []insertion) []byte {
	slices.SortFunc(list, func(a, b insertion) int {
		closes := func(in insertion) int {
			if in.otherEnd < in.offset {
				return 0
			}
			return 1
		}
		// What opens goes from the outside to the inside, what closes the other way.
		return cmp.Or(a.offset-b.offset, closes(a)-closes(b), b.otherEnd-a.otherEnd)
	})
	var out bytes.Buffer
	at := 0
	for _, in := range list {
		out.Write(text[at:in.offset])
		out.WriteString(in.text)
		at = in.offset
	}
	out.Write(text[at:])
	return out.Bytes()
}

func packageName(file string) (string, error) {
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.PackageClauseOnly)
	if err != nil {
		return "", err
	}
	return parsed.Name.Name, nil
}
