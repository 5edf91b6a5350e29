package console

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestStream: a terminal gets no control characters, except for line breaks and colors.
func TestStream(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"a\tb\r\nc\n":                          "a\tb\r\nc\n",
		"é 漢 ✅ │":                              "é 漢 ✅ │",
		"\x1b[31mred\x1b[0m":                   "\x1b[31mred\x1b[0m",
		"\x1b]52;c;Y\a\x1b[2J\x1b[8m\x1b[1;5m": `\x1b]52;c;Y\a\x1b[2J\x1b[8m\x1b[1;5m`,
		"over\rwritten":                        `over\rwritten`,
		"\u202egnp.exe\u009b31m":               `\u202egnp.exe\u009b31m`,
		"a\xffb\b":                             `a\xffb\b`,
	} {
		for at := range len(text) + 1 {
			if inEscape(text, at) {
				continue
			}
			var b strings.Builder
			s := &Stream{Raw: &b, Terminal: true, Color: true}
			for _, part := range []string{text[:at], text[at:]} {
				n, err := s.Write([]byte(part))
				require.NoError(t, err)
				assert.Equal(t, len(part), n)
			}
			assert.Equal(t, want, b.String(), "written in two pieces, split at %d", at)
		}
	}
	var b strings.Builder
	_, err := (&Stream{Raw: &b, Terminal: true}).Write([]byte("\x1b[31mred"))
	require.NoError(t, err)
	assert.Equal(t, `\x1b[31mred`, b.String(), "a stream without colors escapes them")
	b.Reset()
	_, err = (&Stream{Raw: &b}).Write([]byte("\x1b]52\xff"))
	require.NoError(t, err)
	assert.Equal(t, "\x1b]52\xff", b.String(), "a program gets every byte unchanged")
}

// inEscape reports whether a position is within an escape sequence or a line break, which
// this program writes as a whole.
func inEscape(text string, at int) bool {
	return at > 0 && at < len(text) && (text[at-1] == '\r' || strings.LastIndexByte(text[:at], 0x1b) > strings.LastIndexByte(text[:at], 'm'))
}

// waysAround lists the functions that write to the terminal without a Stream, or with
// Stream.Raw, and says why that is safe.
var waysAround = map[string]string{
	"console/console.go:Write":         "escaped text, or a stream that is not a terminal",
	"console/spinner.go:Spin":          "the spinner",
	"screen/screen.go:SetStreams":      "makes the streams",
	"files/copy.go:toStdout":           "the content of a file",
	"files/copy.go:archiveToStdout":    "an archive, which is not for a terminal",
	"cli/emulator.go:runUnderEmulator": "the program's",
	"cli/guard_unix.go:runGuard":       "puts the terminal back in order",
	"cli/mcp.go:run":                   "a protocol",
	"cli/logs.go:write":                "what a program has written",
	"files/progress.go:newBarOf":       "draws over its own line",
	"cli/readwrite.go:catFile":         "the content of a file",
	"cli/commandoptions.go:run":        "what a program writes",
	"cli/rsh.go:remoteShell":           "a protocol",
	"local/daemon.go:Serve":            "the daemon, whose streams are files",
	"local/daemon.go:serve":            "the daemon, whose streams are files",
}

// TestWaysAround finds everything that writes to the terminal without the escaping of a
// Stream.
func TestWaysAround(t *testing.T) {
	t.Parallel()
	found := map[string]bool{}
	root := os.DirFS("../..")
	require.NoError(t, fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join("../..", name), nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		for _, decl := range file.Decls {
			in := strings.TrimPrefix(name, "internal/") + ":"
			if f, ok := decl.(*ast.FuncDecl); ok {
				in += f.Name.Name
			}
			ast.Inspect(decl, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.SelectorExpr:
					pkg, _ := n.X.(*ast.Ident)
					std := pkg != nil && (pkg.Name == "os" && (n.Sel.Name == "Stdout" || n.Sel.Name == "Stderr") ||
						pkg.Name == "fmt" && strings.HasPrefix(n.Sel.Name, "Print"))
					if std || n.Sel.Name == "Raw" && (pkg == nil || pkg.Name != "rawshell") {
						found[in] = true
					}
				case *ast.CallExpr:
					if f, ok := n.Fun.(*ast.Ident); ok && (f.Name == "print" || f.Name == "println") {
						found[in] = true
					}
				}
				return true
			})
		}
		return nil
	}))
	for in := range found {
		_, ok := waysAround[in]
		assert.True(t, ok, "%s: write to the Stream itself, or say in waysAround why this is safe", in)
	}
	for in := range waysAround {
		assert.True(t, found[in], "%s always writes to a Stream: remove it from waysAround", in)
	}
}
