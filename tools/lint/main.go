// Lint finds common mistakes in the packages of this repository:
//
//	make lint
//
// It runs as a tool of go vet, which caches the findings and reuses packages that the tests
// have compiled.
package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"codeberg.org/polyfloyd/go-errorlint/errorlint"
	"github.com/gordonklaus/ineffassign/pkg/ineffassign"
	"github.com/kisielk/errcheck/errcheck"
	"github.com/ldez/usetesting"
	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/analysis/passes/ctrlflow"
	"golang.org/x/tools/go/analysis/passes/modernize"
	"golang.org/x/tools/go/analysis/passes/printf"
	"golang.org/x/tools/go/analysis/suite/vet"
	"golang.org/x/tools/go/analysis/unitchecker"
	"golang.org/x/tools/go/types/typeutil"
	"honnef.co/go/tools/analysis/facts/deprecated"
	"honnef.co/go/tools/simple"
	"honnef.co/go/tools/staticcheck"
	"honnef.co/go/tools/stylecheck"
	"honnef.co/go/tools/unused"
)

const module = "github.com/go-vercel/sandbox"

func main() {
	// For packages of other modules, run only the analyzers that collect facts without the
	// intermediate representation, which is slow to build.
	if cfg := os.Args[len(os.Args)-1]; strings.HasSuffix(cfg, ".cfg") && !ours(cfg) {
		unitchecker.Run(cfg, []*analysis.Analyzer{ctrlflow.Analyzer, deprecated.Analyzer, printf.Analyzer})
	}
	unitchecker.Main(analyzers()...)
}

// ours reports whether a configuration file of go vet is for a package of this project.
func ours(config string) bool {
	var unit struct{ ImportPath string }
	data, err := os.ReadFile(config)
	if err == nil {
		err = json.Unmarshal(data, &unit)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "lint:", err)
		os.Exit(1)
	}
	return strings.HasPrefix(unit.ImportPath, module)
}

// unwanted lists the checks that do not suit this repository, and those that need the
// intermediate representation of every imported package.
var unwanted = []string{"ST1000", "ST1013", "SA4017", "SA4018", "SA4023", "S1011", "SA5012"}

// analyzers returns the analyzers that every package must pass.
func analyzers() []*analysis.Analyzer {
	list := slices.Concat(vet.Suite, modernize.Suite, []*analysis.Analyzer{
		ineffassign.Analyzer,
		with(errorlint.NewAnalyzer(), "comparison=false", "asserts=false", "errorf=true"),
		with(usetesting.NewAnalyzer(), "ossetenv=true"),
		unchecked,
		unusedCode,
		undocumented,
		sleeping,
	})
	for _, a := range slices.Concat(staticcheck.Analyzers, simple.Analyzers, stylecheck.Analyzers) {
		if !slices.Contains(unwanted, a.Analyzer.Name) {
			list = append(list, a.Analyzer)
		}
	}
	for _, a := range list {
		excused(a)
	}
	return list
}

// excused changes an analyzer so that it respects //nolint comments.
func excused(a *analysis.Analyzer) {
	run := a.Run
	a.Run = func(pass *analysis.Pass) (any, error) {
		report := pass.Report
		excuses := map[string]bool{}
		for _, file := range pass.Files {
			for _, group := range file.Comments {
				for _, c := range group.List {
					if strings.HasPrefix(c.Text, "//nolint:") {
						excuses[line(pass, c.Pos())] = true
					}
				}
			}
		}
		pass.Report = func(d analysis.Diagnostic) {
			if !excuses[line(pass, d.Pos)] {
				report(d)
			}
		}
		return run(pass)
	}
}

func line(pass *analysis.Pass, pos token.Pos) string {
	p := pass.Fset.Position(pos)
	return fmt.Sprint(p.Filename, ":", p.Line)
}

// with sets flags of an analyzer, each given as name=value.
func with(a *analysis.Analyzer, flags ...string) *analysis.Analyzer {
	for _, flag := range flags {
		name, value, _ := strings.Cut(flag, "=")
		if err := a.Flags.Set(name, value); err != nil {
			panic(err)
		}
	}
	return a
}

// allowed matches the functions whose errors callers need not check.
var allowed = regexp.MustCompile(`^(fmt\.Fprint(f|ln)?|os\.Remove(All)?|.*Close(Now)?)$`)

// unchecked runs errcheck, except in tests and for allowed functions.
var unchecked = &analysis.Analyzer{
	Name: "errcheck",
	Doc:  "find unchecked errors",
	Run: func(pass *analysis.Pass) (any, error) {
		quiet := *pass
		quiet.Report = func(analysis.Diagnostic) {}
		result, err := errcheck.Analyzer.Run(&quiet)
		if err != nil {
			return nil, err
		}
		for _, e := range result.(errcheck.Result).UncheckedErrors {
			if strings.HasSuffix(e.Pos.Filename, "_test.go") || allowed.MatchString(cmp.Or(e.FuncName, e.SelectorName)) {
				continue
			}
			reportAt(pass, e.Pos, "the error of "+e.SelectorName+" is not checked: "+e.Line)
		}
		return nil, nil
	},
}

// unusedCode reports the result of staticcheck's analyzer, which does not report it itself.
var unusedCode = &analysis.Analyzer{
	Name:     "unused",
	Doc:      "find unused code",
	Requires: []*analysis.Analyzer{unused.Analyzer.Analyzer},
	Run: func(pass *analysis.Pass) (any, error) {
		for _, o := range pass.ResultOf[unused.Analyzer.Analyzer].(unused.Result).Unused {
			reportAt(pass, o.DisplayPosition, o.Kind+" "+o.Name+" is not used")
		}
		return nil, nil
	},
}

// reportAt reports a finding on the line of a position.
func reportAt(pass *analysis.Pass, at token.Position, message string) {
	pass.Fset.Iterate(func(f *token.File) bool {
		if f.Name() != at.Filename {
			return true
		}
		pass.Reportf(f.LineStart(at.Line), "%s", message)
		return false
	})
}

// undocumented reports exported declarations without a comment.
var undocumented = &analysis.Analyzer{
	Name: "undocumented",
	Doc:  "find exported declarations without a comment",
	Run: func(pass *analysis.Pass) (any, error) {
		for _, file := range pass.Files {
			if pass.Pkg.Name() == "main" || strings.HasSuffix(pass.Fset.Position(file.Pos()).Filename, "_test.go") {
				continue
			}
			for _, decl := range file.Decls {
				switch d := decl.(type) {
				case *ast.FuncDecl:
					if d.Doc == nil && d.Recv == nil && d.Name.IsExported() {
						pass.Reportf(d.Pos(), "%s has no comment", d.Name.Name)
					}
				case *ast.GenDecl:
					for _, spec := range d.Specs {
						if s, ok := spec.(*ast.TypeSpec); ok && d.Doc == nil && s.Doc == nil && s.Name.IsExported() {
							pass.Reportf(s.Pos(), "%s has no comment", s.Name.Name)
						}
					}
				}
			}
		}
		return nil, nil
	},
}

// sleeping reports tests that sleep in real time. Files that import testing/synctest may
// sleep, because the time in a synctest bubble is fake.
var sleeping = &analysis.Analyzer{
	Name: "sleeping",
	Doc:  "find tests that sleep",
	Run: func(pass *analysis.Pass) (any, error) {
		for _, file := range pass.Files {
			if !strings.HasSuffix(pass.Fset.Position(file.Pos()).Filename, "_test.go") || imports(file, "testing/synctest") {
				continue
			}
			ast.Inspect(file, func(n ast.Node) bool {
				call, ok := n.(*ast.CallExpr)
				if !ok {
					return true
				}
				if fn, ok := typeutil.Callee(pass.TypesInfo, call).(*types.Func); ok && fn.FullName() == "time.Sleep" {
					pass.Reportf(call.Pos(), "a test must not sleep: wait for a condition, or use testing/synctest")
				}
				return true
			})
		}
		return nil, nil
	},
}

func imports(file *ast.File, path string) bool {
	return slices.ContainsFunc(file.Imports, func(spec *ast.ImportSpec) bool { return spec.Path.Value == strconv.Quote(path) })
}
