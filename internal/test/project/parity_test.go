package project_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/internal/test/needs"
)

// jsModulesEnv names the variable with the node_modules folder of the official SDK.
const jsModulesEnv = "SANDBOX_JS_MODULES"

// declarationFiles are the .d.ts files that matter to users: they declare the types that the
// index exports, and the types of their members.
var declarationFiles = []string{
	"sandbox", "session", "snapshot", "drive", "command", "filesystem", "sandbox-user", "network-policy", "proxy",
	"api-client/api-error", "utils/paginator", "execution-context",
}

// notPublic lists the declarations in these files that users can't name and that only repeat
// others.
var notPublic = []string{"SandboxHandle", "Options", "HasPagination", "ItemOf", "WriteFileData", "RuntimeOrImage"}

// TestParity checks testdata/parity.tsv: it has a row for every public member of the
// official SDK, and every Go symbol in its rows and notes exists.
func TestParity(t *testing.T) {
	atRoot(t)
	rows, notes := parityRows(t)
	symbols := goSymbols(t, map[string]string{"": ".", "proxy": "proxy"})
	members := map[string]bool{} // the names of the symbols without their types
	for s := range symbols {
		members[s[strings.LastIndexByte(s, '.')+1:]] = true
	}
	for _, note := range notes {
		for _, s := range symbolInNote.FindAllString(note, -1) {
			name := strings.Trim(s, "`")
			assert.True(t, symbols[name] || s != name && members[name], "a note in testdata/parity.tsv names %s, but this is not a Go symbol: correct the note: %s", name, note)
		}
	}
	for member, row := range rows {
		for _, s := range row {
			if strings.HasPrefix(s, "context.") || strings.HasPrefix(s, "io.") || strings.HasPrefix(s, "errors.") {
				continue
			}
			assert.True(t, symbols[s], "testdata/parity.tsv names %s for %s, but this is not a Go symbol: name the symbol that does the same", s, member)
		}
	}

	modules := os.Getenv(jsModulesEnv)
	// If the folder contains two versions, the newer one has this name.
	dist := filepath.Join(modules, "vercel-sandbox-3", "dist")
	if _, err := os.Stat(dist); err != nil {
		dist = filepath.Join(modules, "@vercel", "sandbox", "dist")
	}
	if _, err := os.Stat(dist); modules == "" || err != nil {
		needs.Missing(t, "%s, a node_modules folder with @vercel/sandbox", jsModulesEnv)
	}
	members = map[string]bool{}
	for _, file := range declarationFiles {
		text, err := os.ReadFile(filepath.Join(dist, filepath.FromSlash(file)+".d.ts"))
		require.NoError(t, err)
		for _, m := range declaredMembers(string(text)) {
			members[m] = true
		}
	}
	index, err := os.ReadFile(filepath.Join(dist, "index.d.ts"))
	require.NoError(t, err)
	for _, name := range exportedNames(string(index)) {
		members[name] = true
	}
	require.Greater(t, len(members), 200, "the declarations were not understood")
	for m := range members {
		assert.Contains(t, rows, m, "testdata/parity.tsv has no row for %s: add one with the Go symbols that do the same, or with a note that explains why there is none", m)
	}
	for m := range rows {
		if newer, ok := strings.CutPrefix(m, "newer: "); ok {
			assert.False(t, members[newer], "testdata/parity.tsv marks %s as newer than the declarations, but they contain it: remove \"newer: \"", newer)
			continue
		}
		assert.True(t, members[m], "testdata/parity.tsv has a row for %s, which the official SDK does not have: remove it", m)
	}
}

// symbolInNote matches the Go symbols in a note, which have the form Type.Member or `Name`.
var symbolInNote = regexp.MustCompile("`[A-Z]\\w+`|\\b[A-Z]\\w*\\.[A-Z]\\w*")

// parityRows reads the table, which maps JavaScript members to Go symbols, and its notes. A
// row without a symbol has a note with the reason.
func parityRows(t *testing.T) (rows map[string][]string, notes []string) {
	text, err := os.ReadFile("testdata/parity.tsv")
	require.NoError(t, err)
	rows = map[string][]string{}
	for line := range strings.Lines(string(text)) {
		member, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		if member == "JavaScript" {
			continue // this is the heading
		}
		named, note, _ := strings.Cut(rest, "\t")
		var symbols []string
		if named != "" {
			symbols = strings.Split(named, ",")
		} else {
			assert.NotEmpty(t, note, "testdata/parity.tsv: %s has neither a Go symbol nor a note: add one of them", member)
		}
		_, twice := rows[member]
		assert.False(t, twice, "testdata/parity.tsv: %s has two rows: remove one", member)
		rows[member] = symbols
		notes = append(notes, note)
	}
	require.NotEmpty(t, rows)
	return rows, notes
}

var (
	comment     = regexp.MustCompile(`(?s)/\*.*?\*/|//[^\n]*`)
	declaration = regexp.MustCompile(`(?m)^(?:export )?(?:declare )?(class|interface|type|function) (\w+)`)
	exports     = regexp.MustCompile(`export \{([^}]*)\}`)
	memberName  = regexp.MustCompile(`^(\[[\w.]+\]|[\w$]+)`)
)

// exportedNames returns the names that index.d.ts exports.
func exportedNames(text string) []string {
	var out []string
	for _, m := range exports.FindAllStringSubmatch(text, -1) {
		for name := range strings.SplitSeq(m[1], ",") {
			if name = strings.TrimPrefix(strings.TrimSpace(name), "type "); name != "" {
				out = append(out, name)
			}
		}
	}
	return out
}

// declaredMembers returns the names that a .d.ts file declares: Type, and Type.member for
// each public member. Members include the fields of listed items and of the parameter of
// update.
func declaredMembers(text string) []string {
	const internal = "@internal "
	text = comment.ReplaceAllStringFunc(text, func(c string) string {
		if strings.Contains(c, "@internal") {
			return internal
		}
		return ""
	})
	var out []string
	for _, at := range declaration.FindAllStringSubmatchIndex(text, -1) {
		kind, name := text[at[2]:at[3]], text[at[4]:at[5]]
		if slices.Contains(notPublic, name) {
			continue
		}
		out = append(out, name)
		rest := text[at[1]:]
		var bodies []string
		switch kind {
		case "class", "interface":
			bodies = []string{braced(rest[strings.IndexByte(rest, '{'):])}
		case "type":
			alias := statement(rest)
			for i := 0; i < len(alias); i++ {
				if alias[i] == '{' {
					b := braced(alias[i:])
					bodies = append(bodies, b)
					i += len(b) + 1
				}
			}
		}
		for _, body := range bodies {
			for _, m := range members(body) {
				out = append(out, name+"."+m.name)
				for _, field := range m.fields() {
					out = append(out, name+"."+m.name+"."+field)
				}
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

type member struct{ name, text string }

// members splits the body of a declaration into its members.
func members(body string) []member {
	var out []member
	for body = strings.TrimSpace(body); body != ""; body = strings.TrimSpace(body) {
		s := statement(body)
		body = body[min(len(s)+1, len(body)):]
		s = strings.TrimSpace(s)
		hidden := strings.HasPrefix(s, "@internal")
		s = strings.TrimSpace(strings.TrimPrefix(s, "@internal"))
		for _, modifier := range []string{"private ", "protected ", "static ", "readonly ", "get ", "set "} {
			if rest, ok := strings.CutPrefix(s, modifier); ok {
				s = rest
				hidden = hidden || modifier == "private " || modifier == "protected "
			}
		}
		name := memberName.FindString(s)
		after := strings.TrimPrefix(s, name)
		if hidden || name == "" || name == "constructor" || strings.HasPrefix(after, " in ") || strings.HasPrefix(after, ": never") || strings.HasPrefix(after, "?: never") {
			continue
		}
		out = append(out, member{name, after})
	}
	return out
}

// fields returns the fields of a member's inline type, for the items of a listing and the
// parameter of update.
func (m member) fields() []string {
	var body string
	if _, listed, ok := strings.Cut(m.text, "Paginator<"); ok {
		body = braced(listed)
	} else if m.name == "update" {
		if _, params, ok := strings.Cut(m.text, "(params: "); ok {
			body = braced(params)
		}
	}
	var out []string
	var walk func(prefix, body string, depth int)
	walk = func(prefix, body string, depth int) {
		for _, f := range members(body) {
			if strings.HasPrefix(f.name, "[") {
				continue
			}
			out = append(out, prefix+f.name)
			if i := strings.IndexByte(f.text, '{'); i >= 0 && depth > 0 && f.name != "networkPolicy" {
				walk(prefix+f.name+".", braced(f.text[i:]), depth-1)
			}
		}
	}
	if body != "" {
		walk("", body, 2)
	}
	return out
}

// braced returns the text between the brace at the start of s and its match.
func braced(s string) string {
	depth := 0
	for i := range len(s) {
		switch s[i] {
		case '{':
			depth++
		case '}':
			if depth--; depth == 0 {
				return s[1:i]
			}
		}
	}
	return ""
}

// statement returns s up to the semicolon that ends it.
func statement(s string) string {
	depth := 0
	for i := range len(s) {
		switch s[i] {
		case '{', '(', '[':
			depth++
		case '}', ')', ']':
			depth--
		case ';':
			if depth == 0 {
				return s[:i]
			}
		}
	}
	return s
}

// goSymbols returns the exported names of packages: Name, Type.Method and Type.Field. Names
// of packages other than the root have the package's name and a dot as prefix.
func goSymbols(t *testing.T, dirs map[string]string) map[string]bool {
	symbols := map[string]bool{}
	for pkg, dir := range dirs {
		if pkg != "" {
			pkg += "."
		}
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		require.NoError(t, err)
		embedded := map[string][]string{}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
			require.NoError(t, err)
			for _, decl := range parsed.Decls {
				for _, name := range declared(decl, embedded) {
					symbols[pkg+name] = true
				}
			}
		}
		for outer, inners := range embedded {
			for _, inner := range inners {
				for name := range symbols {
					if rest, ok := strings.CutPrefix(name, pkg+inner+"."); ok {
						symbols[pkg+outer+"."+rest] = true
					}
				}
			}
		}
	}
	return symbols
}

// declared returns the names that a declaration exports, and adds its embedded types to
// embedded.
func declared(decl ast.Decl, embedded map[string][]string) []string {
	var out []string
	switch d := decl.(type) {
	case *ast.FuncDecl:
		name := d.Name.Name
		if d.Recv != nil {
			name = typeName(d.Recv.List[0].Type) + "." + name
		}
		if ast.IsExported(d.Name.Name) {
			out = append(out, name)
		}
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			switch s := spec.(type) {
			case *ast.ValueSpec:
				for _, n := range s.Names {
					if n.IsExported() {
						out = append(out, n.Name)
					}
				}
			case *ast.TypeSpec:
				if !s.Name.IsExported() {
					continue
				}
				out = append(out, s.Name.Name)
				if it, ok := s.Type.(*ast.InterfaceType); ok {
					for _, m := range it.Methods.List {
						for _, n := range m.Names {
							out = append(out, s.Name.Name+"."+n.Name)
						}
					}
				}
				st, ok := s.Type.(*ast.StructType)
				if !ok {
					continue
				}
				for _, f := range st.Fields.List {
					if len(f.Names) == 0 {
						embedded[s.Name.Name] = append(embedded[s.Name.Name], typeName(f.Type))
					}
					for _, n := range f.Names {
						if n.IsExported() {
							out = append(out, s.Name.Name+"."+n.Name)
						}
					}
				}
			}
		}
	}
	return out
}

func typeName(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return typeName(e.X)
	case *ast.IndexExpr:
		return typeName(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}
