package guard

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// unguarded are the goroutines without a Guard, and why they need none.
var unguarded = map[string]string{
	"guard.go Guard.Go: group.Go": "it is what guards",

	"../box/thread_linux.go onThread: go":                         "tried makes an error of a panic",
	"../box/thread_linux.go threads.add: go":                      "tried makes an error of a panic",
	"../box/thread_linux.go lockAway: go":                         "its callers are listed here themselves",
	"../box/namespace_linux.go namespaceBackend.onBootThread: go": "tried makes an error of a panic",
	"../box/child.go startChild: go":                              "tried makes an error of a panic; then it waits",
	"../box/agent_linux.go runAgent: go":                          "tried makes an error of a panic",
	"../box/machine_linux.go namespaceMachine.boot: go":           "it waits for a process",
	"../box/process.go Box.Start: go":                             "it waits for a process; pipes read its output",
	"../box/host.go Host.Close: wg.Go":                            "it stops and removes boxes",
	"../box/store.go store.clear: s.clearing.Go":                  "it removes files",
	"../box/box.go Box.Extract: pump.Go":                          "it copies what a client has sent",
	"../box/pipes.go pipes.run: go":                               "it copies what a client has sent",
	"../box/remote_linux.go remoteMachine.extract: go":            "it copies what a client has sent",
	"../../sources.go gzipped: wg.Go":                             "it copies what a client has sent",
	"../../interactive.go terminal.run: go":                       "it reads what a client sends",
	"../store/launch.go Session.launchCommand: go":                "it waits for a process; what is left of its output is guarded",
	"../store/lifecycle.go Store.shutDown: go":                    "a Guard calls what looks into a sandbox",
	"../store/stubs.go startStub: go":                             "a function of the test: what goes wrong there is the test's to see",
	"../store/state.go Store.Load: st.background.Go":              "it saves",
	"../store/store.go Store.Spawn: go":                           "net/http has a recover of its own for each connection",
	"../firewall/firewall.go Site.New: f.serving.Go":              "net/http has a recover of its own for each connection",
}

// TestEveryGoroutineIsGuarded: a goroutine of the emulator is started by a Guard,
// or is listed with the reason why nothing that a box sends is handled there.
func TestEveryGoroutineIsGuarded(t *testing.T) {
	found := map[string]string{}
	for _, dir := range []string{"../..", "../store", "../box", "../firewall", "."} {
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		require.NoError(t, err)
		for _, name := range files {
			if !strings.HasSuffix(name, "_test.go") {
				maps.Copy(found, goroutines(t, name))
			}
		}
	}
	for where := range found {
		if unguarded[where] == "" {
			t.Errorf("%s\n\tstarts a goroutine (%s) without Guard.Go: a panic there ends the process", where, found[where])
		}
	}
	for where := range unguarded {
		assert.Contains(t, found, where, "listed, but there is no such goroutine")
	}
}

// goroutines are where a file starts goroutines other than by a Guard: the
// function, and what starts it.
func goroutines(t *testing.T, name string) map[string]string {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, name, nil, 0)
	require.NoError(t, err)
	found := map[string]string{}
	for _, decl := range file.Decls {
		fn, ok := decl.(*ast.FuncDecl)
		if !ok {
			continue
		}
		in := fn.Name.Name
		if fn.Recv != nil {
			in = strings.TrimPrefix(typeName(fn.Recv.List[0].Type), "*") + "." + in
		}
		ast.Inspect(fn, func(node ast.Node) bool {
			how := ""
			switch node := node.(type) {
			case *ast.GoStmt:
				how = "go"
			case *ast.CallExpr:
				if sel, ok := node.Fun.(*ast.SelectorExpr); ok && sel.Sel.Name == "Go" && len(node.Args) == 1 {
					how = typeName(sel)
				}
			}
			if how != "" {
				found[name+" "+in+": "+how] = set.Position(node.Pos()).String()
			}
			return true
		})
	}
	return found
}

func typeName(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return "*" + typeName(e.X)
	case *ast.SelectorExpr:
		return typeName(e.X) + "." + e.Sel.Name
	case *ast.Ident:
		return e.Name
	}
	return fmt.Sprintf("%T", e)
}
