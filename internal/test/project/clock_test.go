package project_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// outsideRules are the functions of tests that a rule of TestNoClockDecides does
// not bind, by folder and name, each with the reason. One that a rule would
// bind no more is refused, too.
var outsideRules = map[string]string{
	"cmd/sandbox/internal/local/TestIdle":                    "a daemon that is in use does not end, at any speed",
	"durable/TestLeaseIsRenewed":                             "looks again and again for what its command waits for",
	"sandboxtest/internal/box/TestPrivateFiles":              "the home of a user is what it is about",
	"sandboxtest/TestHidden":                                 "the home of a user is what it is about",
	"internal/test/testkit/Linger":                           "is the only one that waits",
	"internal/test/testmain/TestMainWaits":                   "leaves a goroutine that sleeps",
	"local.MkdirTemp":                                        "is what is compared with the SDK's",
	"internal/test/modeltest/world.tree":                     "runs many times in a test, which has one folder",
	"durable/examples/stores/sqlstore/startPostgres":         "what t.TempDir makes its owner alone can enter",
	"internal/test/reliability/TestCancellationsOfProcesses": "it cancels at random moments",
	"internal/test/testkit/AsNobody":                         "what t.TempDir makes its owner alone can enter",
	"sandboxtest/internal/box/TestGuestsElsewhere":           "is about a folder on another file system",
	"cmd/sandbox/TestKeptTerminal":                           "the name of a socket is short",
	"sandboxtest/openToAll":                                  "what t.TempDir makes its owner alone can enter",
	"internal/logstream/TestFind":                            "its responses are made in a bubble",
	"internal/logstream/service.over":                        "runs in bubbles",
	"internal/platform/stopsAtOnce":                          "is a row of TestPlatform",
	"internal/test/modeltest/world.killed":                   "a caller gives up, whatever has happened until then",
	"TestNoneSurvives":                                       "what a kill leaves is always judged; the requests are not counted where it took longer than its script has",
	"internal/test/reliability/fire.cancel":                  "a caller gives up, whatever has happened until then; what took longer is not judged",
	"internal/test/reliability/TestManyCallsAtOnce":          "callers give up, whatever has happened until then",
	"internal/test/limits/endlessCalls":                      "waits for what never comes",
	"sandboxtest/endless.Read":                               "is as slow as the server does not allow; one that is faster is refused for its size",
	"sandboxtest/TestHostileBodies":                          "ends a client that has no other end",
	"sandboxtest/TestSilentTarballServer":                    "a tenth of the pause is allowed for what a whole pause is not",
	"sandboxtest/internal/box/slowWriter.Write":              "is slower than the grace period of a process",
}

// TestNoClockDecides: no test of any module depends on how fast the machine is,
// on a port or on a folder that others may use. In a bubble of testing/synctest
// everything is allowed: its clock is not the machine's. Without it tests failed on
// busy machines, and passed by luck on quiet ones.
func TestNoClockDecides(t *testing.T) {
	t.Parallel()
	atRoot(t)
	folders := map[string]map[string]*ast.File{}
	fset := token.NewFileSet()
	require.NoError(t, filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == ".git" || d.Name() == "node_modules"):
			return filepath.SkipDir
		case !strings.HasSuffix(name, "_test.go") && !ofTests[filepath.ToSlash(filepath.Dir(name))]:
			return nil
		case !strings.HasSuffix(name, ".go"):
			return nil
		}
		file, err := parser.ParseFile(fset, name, nil, parser.SkipObjectResolution)
		dir := filepath.ToSlash(filepath.Dir(name))
		if folders[dir] == nil {
			folders[dir] = map[string]*ast.File{}
		}
		folders[dir][name] = file
		return err
	}))
	require.Greater(t, len(folders), 40)
	exempt := map[string]bool{}
	for _, dir := range slices.Sorted(maps.Keys(folders)) {
		for _, f := range clockFindings(fset, folders[dir]) {
			name := strings.TrimPrefix(dir+"/"+f.function, "./")
			if outsideRules[name] != "" {
				exempt[name] = true
				continue
			}
			t.Errorf("%s: %s (in %s)", f.position, f.text, name)
		}
	}
	for name := range outsideRules {
		assert.True(t, exempt[name], "outsideRules has %s, which breaks no rule any longer: remove the row", name)
	}
}

// What several rules say.
const (
	aDuration = "a duration that was measured decides, and a busy machine is slower: count what happened, or measure in a bubble of testing/synctest"
	aPort     = "a fixed port, which another process may have: listen on port 0"
)

// ofTests are folders whose code only tests use.
var ofTests = map[string]bool{"internal/test/testkit": true, "internal/test/needs": true, "internal/test/testmain": true}

type clockFinding struct {
	position       token.Position
	text, function string
}

// clockFindings applies the rules to the test files of one folder.
func clockFindings(fset *token.FileSet, files map[string]*ast.File) []clockFinding {
	c := &clockRules{fset: fset, bubbles: bubbles(files), constants: constants(files)}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		for _, decl := range files[name].Decls {
			c.function = declName(decl)
			measures := strings.HasPrefix(c.function, "Example") || strings.HasPrefix(c.function, "Benchmark")
			if !c.bubbles[c.function] && !measures {
				c.measured, c.inBubbles = map[string]bool{}, bubbled(decl)
				ast.Inspect(decl, c.visit)
			}
		}
	}
	return c.found
}

type clockRules struct {
	fset      *token.FileSet
	bubbles   map[string]bool     // declarations that only bubbles use
	constants map[string]ast.Expr // of the folder
	function  string              // that is being visited
	measured  map[string]bool     // variables of it that hold how long something took
	inBubbles bool                // it has a bubble, for the rows of its table
	found     []clockFinding
}

func (c *clockRules) report(n ast.Node, format string, args ...any) {
	c.found = append(c.found, clockFinding{c.fset.Position(n.Pos()), fmt.Sprintf(format, args...), c.function})
}

func (c *clockRules) visit(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.CallExpr:
		if isCall(n, "synctest", "Test") {
			return false
		}
		c.call(n)
	case *ast.CompositeLit:
		return !c.inBubbles
	case *ast.AssignStmt:
		for i, right := range n.Rhs {
			if name, ok := n.Lhs[min(i, len(n.Lhs)-1)].(*ast.Ident); ok && c.measures(right) {
				c.measured[name.Name] = true
			}
		}
	case *ast.BinaryExpr:
		order := n.Op == token.LSS || n.Op == token.GTR || n.Op == token.LEQ || n.Op == token.GEQ
		if order && (c.measures(n.X) || c.measures(n.Y)) && !c.patient(n.X) && !c.patient(n.Y) {
			c.report(n, "%s", aDuration)
		}
	case *ast.KeyValueExpr:
		key, _ := n.Key.(*ast.Ident)
		if key != nil && key.Name == "Addr" && fixedPort(n.Value) {
			c.report(n, "%s", aPort)
		}
	}
	return true
}

func (c *clockRules) call(n *ast.CallExpr) {
	pkg, name := callee(n)
	switch {
	case pkg == "time" && name == "Sleep":
		c.report(n, "time.Sleep: wait for a condition, sleep in a bubble of testing/synctest, or call testkit.Linger to give something a moment to go wrong")
	case pkg == "time" && (name == "After" || name == "NewTimer" || name == "AfterFunc"), pkg == "context" && strings.HasPrefix(name, "WithTimeout"):
		for _, arg := range n.Args {
			if d, ok := c.duration(arg); ok && d < minute {
				c.report(n, "%s.%s of less than a minute, which a busy machine takes: give up after testkit.Patience", pkg, name)
			}
		}
	case strings.HasPrefix(name, "Listen") && slices.ContainsFunc(n.Args, fixedPort):
		c.report(n, "%s", aPort)
	case pkg == "os" && (name == "TempDir" || name == "MkdirTemp" || name == "CreateTemp"):
		c.report(n, "os.%s, whose files stay: use t.TempDir", name)
	case pkg == "os" && slices.ContainsFunc(n.Args, func(arg ast.Expr) bool {
		text := literal(arg)
		return text == "/tmp" || strings.HasPrefix(text, "/tmp/")
	}):
		c.report(n, "a name in the temporary folder of everybody, which another run may have taken: use t.TempDir")
	case pkg == "assert" || pkg == "require":
		c.assertion(n, strings.TrimSuffix(name, "f"))
	}
}

// assertion looks at an assertion of testify. That something took at least so
// long holds on each machine.
func (c *clockRules) assertion(n *ast.CallExpr, name string) {
	switch name {
	case "Eventually", "EventuallyWithT":
		if d, ok := c.duration(n.Args[2]); ok && d < minute {
			c.report(n, "patience of less than a minute, which a busy machine takes: use testkit.Patience")
		}
	case "Never":
		c.report(n, "that nothing happens in some time, which a slow machine grants: wait for what comes after it, or look in a bubble of testing/synctest")
	case "Greater", "GreaterOrEqual":
		if c.measures(n.Args[2]) || calls(n.Args[1], "time", "Until") {
			c.report(n, "%s", aDuration)
		}
	case "WithinDuration":
		if !isZero(n.Args[3]) {
			c.report(n, "a moment that was measured decides: take one before and one after, and use WithinRange")
		}
	case "WithinRange":
	default:
		if slices.ContainsFunc(n.Args, c.measures) {
			c.report(n, "%s", aDuration)
		}
	}
}

// patient reports whether a duration is at least a minute, or not a constant.
func (c *clockRules) patient(e ast.Expr) bool {
	d, ok := c.duration(e)
	return ok && d >= minute
}

func bubbled(decl ast.Decl) (found bool) {
	ast.Inspect(decl, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		found = found || ok && isCall(call, "synctest", "Test")
		return !found
	})
	return found
}

// measures reports whether an expression, or what a function returns, is how long
// something took.
func (c *clockRules) measures(e ast.Expr) bool {
	found := calls(e, "time", "Since") || calls(e, "time", "Until")
	ast.Inspect(e, func(n ast.Node) bool {
		if name, ok := n.(*ast.Ident); ok {
			found = found || c.measured[name.Name]
		}
		_, inner := n.(*ast.FuncLit)
		return !found && !inner
	})
	return found
}

// calls reports whether an expression calls a function of a package.
func calls(e ast.Expr, pkg, name string) bool {
	found := false
	ast.Inspect(e, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		found = found || ok && isCall(call, pkg, name)
		return !found
	})
	return found
}

func isZero(e ast.Expr) bool {
	l, ok := e.(*ast.BasicLit)
	return ok && l.Value == "0"
}

const minute = 60e9

var units = map[string]float64{"Nanosecond": 1, "Microsecond": 1e3, "Millisecond": 1e6, "Second": 1e9, "Minute": 60e9, "Hour": 3600e9}

// duration is the value of an expression of constants, in nanoseconds. Of a sum
// or a product with something else it is the part that is known.
func (c *clockRules) duration(e ast.Expr) (float64, bool) {
	switch e := e.(type) {
	case *ast.ParenExpr:
		return c.duration(e.X)
	case *ast.BasicLit:
		var v float64
		_, err := fmt.Sscan(e.Value, &v)
		return v, err == nil
	case *ast.SelectorExpr:
		unit, ok := units[e.Sel.Name]
		return unit, ok
	case *ast.Ident:
		if value := c.constants[e.Name]; value != nil {
			return c.duration(value)
		}
	case *ast.BinaryExpr:
		x, okX := c.duration(e.X)
		y, okY := c.duration(e.Y)
		switch {
		case !okX || !okY:
			return max(x, y), okX || okY
		case e.Op == token.MUL:
			return x * y, true
		case e.Op == token.QUO:
			return x / y, true
		case e.Op == token.ADD:
			return x + y, true
		}
	}
	return 0, false
}

// fixedPort reports whether a literal is an address with a port of its own.
func fixedPort(e ast.Expr) bool {
	text := literal(e)
	i := strings.LastIndexByte(text, ':')
	return i >= 0 && strings.Trim(text[i+1:], "0123456789") == "" && strings.Trim(text[i+1:], "0") != ""
}

func literal(e ast.Expr) string {
	if l, ok := e.(*ast.BasicLit); ok && l.Kind == token.STRING {
		return strings.Trim(l.Value, "`\"")
	}
	return ""
}

func callee(n *ast.CallExpr) (pkg, name string) {
	if s, ok := n.Fun.(*ast.SelectorExpr); ok {
		if x, ok := s.X.(*ast.Ident); ok {
			return x.Name, s.Sel.Name
		}
		return "", s.Sel.Name
	}
	return "", ""
}

func isCall(n *ast.CallExpr, pkg, name string) bool {
	p, f := callee(n)
	return p == pkg && f == name
}

func constants(files map[string]*ast.File) map[string]ast.Expr {
	values := map[string]ast.Expr{}
	for _, file := range files {
		ast.Inspect(file, func(n ast.Node) bool {
			if spec, ok := n.(*ast.ValueSpec); ok && len(spec.Names) == len(spec.Values) {
				for i, name := range spec.Names {
					values[name.Name] = spec.Values[i]
				}
			}
			return true
		})
	}
	return values
}

// declName names a declaration: a function, Type.Method, or the first name of
// another one.
func declName(decl ast.Decl) string {
	switch decl := decl.(type) {
	case *ast.FuncDecl:
		if decl.Recv != nil {
			return receiver(decl) + "." + decl.Name.Name
		}
		return decl.Name.Name
	case *ast.GenDecl:
		switch spec := decl.Specs[0].(type) {
		case *ast.TypeSpec:
			return spec.Name.Name
		case *ast.ValueSpec:
			return spec.Names[0].Name
		}
	}
	return ""
}

func receiver(decl *ast.FuncDecl) string {
	t := decl.Recv.List[0].Type
	if star, ok := t.(*ast.StarExpr); ok {
		t = star.X
	}
	if index, ok := t.(*ast.IndexExpr); ok {
		t = index.X
	}
	return t.(*ast.Ident).Name
}

// bubbles returns the declarations that are used, by name, in bubbles and in
// each other alone. A method may also be used through an interface: it counts if
// its type does.
func bubbles(files map[string]*ast.File) map[string]bool {
	users := map[string]map[string]bool{} // by the name that they use; "" is a bubble
	var decls []ast.Decl
	for _, file := range files {
		for _, decl := range file.Decls {
			decls = append(decls, decl)
			own := declName(decl)
			use := func(name, by string) {
				if users[name] == nil {
					users[name] = map[string]bool{}
				}
				users[name][by] = true
			}
			var look func(n ast.Node, by string)
			look = func(n ast.Node, by string) {
				ast.Inspect(n, func(n ast.Node) bool {
					switch n := n.(type) {
					case *ast.CallExpr:
						if isCall(n, "synctest", "Test") && by != "" {
							look(n, "")
							return false
						}
					case *ast.Ident:
						use(n.Name, by)
					}
					return true
				})
			}
			look(decl, own)
		}
	}
	in := map[string]bool{} // at first all that are used
	for _, decl := range decls {
		in[declName(decl)] = true
	}
	onlyIn := func(name string, except func(by string) bool) bool {
		used := false
		for by := range users[name] {
			if except(by) {
				continue
			}
			if by != "" && !in[by] {
				return false
			}
			used = true
		}
		return used
	}
	for before := 0; before != len(in); {
		before = len(in)
		for _, decl := range decls {
			own := declName(decl)
			name, itsType := own, ""
			if f, ok := decl.(*ast.FuncDecl); ok {
				name = f.Name.Name
				if f.Recv != nil {
					itsType = receiver(f)
				}
			}
			// A type's own methods name it.
			itself := func(by string) bool { return by == own || itsType == "" && strings.HasPrefix(by, own+".") }
			if !onlyIn(name, itself) && !(itsType != "" && in[itsType]) {
				delete(in, own)
			}
		}
	}
	return in
}
