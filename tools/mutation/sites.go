package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/printer"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// site is a place of the code that can be broken.
type site struct {
	heart int
	file  string // below the module
	row   string // names the site without its position, which other changes move
	at    []insertion
	// refuses is set in a condition behind which an error is made and returned.
	refuses bool
	// bug is set if the row names one of bugs.txt.
	bug *bug
	// number is what turns it on, in a run.
	number int
}

func (s site) String() string { return s.row }

// guard reports whether the site is a condition of certain functions that keeps
// something out, or of any function if it leads to an error. The error of another
// function is none.
func (s site) guard(functions *regexp.Regexp) bool {
	if functions == nil {
		return s.refuses
	}
	parts := strings.SplitN(s.row, " ", 3) // the file, the function, what is done
	kind, condition, _ := strings.Cut(parts[2], ": ")
	return functions.MatchString(parts[1]) && (kind == "let through" || kind == "without") &&
		!strings.HasPrefix(condition, "err != nil (") && condition != "err != nil" && !strings.HasPrefix(condition, "err == nil")
}

// insertion is text put in at one end of a node; %d is the number of the row.
type insertion struct {
	offset, otherEnd int
	text             string
}

// sites returns what can be broken in the files of a heart.
func (l *list) sites(number int) ([]site, error) {
	h := l.hearts[number]
	var files []string
	for pattern := range strings.FieldsSeq(h.files) {
		some, err := filepath.Glob(filepath.Join(h.module, h.dir, pattern))
		if err != nil {
			return nil, err
		}
		files = append(files, some...)
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
	refusals       [][2]token.Pos // the conditions behind which errors are made
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
	refuses := slices.ContainsFunc(f.refusals, func(r [2]token.Pos) bool { return r[0] <= n.Pos() && n.End() <= r[1] })
	f.found = append(f.found, site{heart: f.heart, file: f.file, row: row, at: []insertion{{from, to, before}, {to, from, after}}, refuses: refuses})
}

func (f *finder) visit(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.IfStmt:
		if makesError(n.Body.List) {
			f.refusals = append(f.refusals, [2]token.Pos{n.Cond.Pos(), n.Cond.End()})
		}
		f.add("if not", n.Cond, "mutationNot(%d, ", ")")
		if leaves(n.Body.List) {
			f.add("let through", n.Cond, "!mutationOn(%d) && (", ")")
		}
	case *ast.SwitchStmt:
		if n.Tag == nil {
			f.cases(n.Body.List)
		}
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

// cases notes those of a switch over conditions that are left at once.
func (f *finder) cases(list []ast.Stmt) {
	for _, s := range list {
		if c, ok := s.(*ast.CaseClause); ok && leaves(c.Body) {
			for _, e := range c.List {
				if makesError(c.Body) {
					f.refusals = append(f.refusals, [2]token.Pos{e.Pos(), e.End()})
				}
				f.add("let through", e, "!mutationOn(%d) && (", ")")
			}
		}
	}
}

// leaves reports whether a block says no: it ends in a return, or skips the rest
// of a loop.
func leaves(list []ast.Stmt) bool {
	if len(list) == 0 {
		return false
	}
	switch s := list[len(list)-1].(type) {
	case *ast.ReturnStmt:
		return true
	case *ast.BranchStmt:
		return s.Tok == token.CONTINUE
	}
	return false
}

// makesError reports whether a block ends in the return of an error that it makes.
func makesError(list []ast.Stmt) bool {
	if !leaves(list) {
		return false
	}
	r, ok := list[len(list)-1].(*ast.ReturnStmt)
	if !ok || len(r.Results) == 0 {
		return false
	}
	switch last := r.Results[len(r.Results)-1].(type) {
	case *ast.UnaryExpr:
		return last.Op == token.AND
	case *ast.CallExpr:
		name := last.Fun
		if of, ok := name.(*ast.SelectorExpr); ok {
			name = of.Sel
		}
		id, ok := name.(*ast.Ident)
		return ok && (id.Name == "Errorf" || id.Name == "New" || id.Name == "usagef")
	}
	return false
}
