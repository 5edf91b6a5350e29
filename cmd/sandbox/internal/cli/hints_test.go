package cli

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/cmd/sandbox/internal/line"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/screen"
)

// placeholders replaces the placeholders of hints and formats by valid words.
var placeholders = strings.NewReplacer("%s", "x", "%d", "8080", "NAME", "web", "COMMAND", "true", "FILE", "f", "COUNT", "2")

// descriptions are the fields whose texts describe commands. They are not hints.
var descriptions = []string{"Name", "Short", "Long", "Example", "Text", "Near"}

// TestHints: a text that tells the user to run this program uses Try, and its command
// line is valid.
func TestHints(t *testing.T) {
	t.Parallel()
	commands := testTree(t)
	mentions := regexp.MustCompile(`\bsandbox (?:--?[a-z-]+ )*([a-z-]+)`)
	var sources []string
	for _, dir := range []string{".", "../account", "../files", "../line", "../screen"} {
		found, err := filepath.Glob(dir + "/*.go")
		require.NoError(t, err)
		sources = append(sources, found...)
	}
	set, lines := token.NewFileSet(), 0
	for _, file := range sources {
		if strings.HasSuffix(file, "_test.go") || slices.Contains([]string{"hints.go", "helplines.go"}, filepath.Base(file)) {
			continue
		}
		parsed, err := parser.ParseFile(set, file, nil, 0)
		require.NoError(t, err)
		look := func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.KeyValueExpr:
				key, ok := n.Key.(*ast.Ident)
				return !ok || !slices.Contains(descriptions, key.Name)
			case *ast.CallExpr:
				called, ok := n.Fun.(*ast.Ident)
				if of, is := n.Fun.(*ast.SelectorExpr); is {
					called, ok = of.Sel, true
				}
				if ok && slices.Contains([]string{"Option", "Options", "Toggle", "Choice"}, called.Name) {
					return false
				}
				if !ok || called.Name != "Try" {
					return true
				}
				format, ok := n.Args[0].(*ast.BasicLit)
				if !assert.True(t, ok, "%s: the argument of Try is a literal", set.Position(n.Pos())) {
					return false
				}
				text, err := strconv.Unquote(format.Value)
				require.NoError(t, err)
				words := strings.Fields(placeholders.Replace(strings.ReplaceAll(text, "snapshots tree %s --cursor %s", "snapshots tree %s --cursor snap_x")))
				if slices.Contains(words, "--sort-order") {
					words[len(words)-1] = "asc"
				}
				hint := strings.Replace(strings.Join(words, " "), "cp x -", "cp x:f -", 1)
				assert.NoError(t, checkLine(t, strings.Fields(hint)), "%s: sandbox %s", set.Position(n.Pos()), hint)
				lines++
				return false
			case *ast.BasicLit:
				if n.Kind != token.STRING {
					return true
				}
				text, err := strconv.Unquote(n.Value)
				require.NoError(t, err)
				for _, found := range mentions.FindAllStringSubmatch(text, -1) {
					if line.Child(commands, found[1]) != nil {
						assert.Fail(t, "a hint that does not use Try", "%s: %s", set.Position(n.Pos()), text)
					}
				}
			}
			return true
		}
		ast.Inspect(parsed, look)
	}
	assert.Greater(t, lines, 20)
}

// checkLine checks a command line as far as possible without running it.
func checkLine(t *testing.T, words []string) error {
	t.Helper()
	root := testTree(t)
	out, _, err := line.Arrange(root, words)
	if err != nil {
		return err
	}
	cmd := root
	for len(out) > 0 && line.Child(cmd, out[0]) != nil {
		cmd, out = line.Child(cmd, out[0]), out[1:]
	}
	if cmd.HasSubCommands() {
		return fmt.Errorf("%q is not a command", out)
	}
	return cmd.ValidateArgs(out)
}

// TestFilled: a hint contains the options of the command line that name the account, and
// never a token.
func TestFilled(t *testing.T) {
	t.Parallel()
	for words, want := range map[string]string{
		"ls":                                    "run sandbox rm web now",
		"--local --project=p ls":                "run sandbox --local --project=p rm web now",
		"ls --scope work --token secret":        "run sandbox --scope=work rm web now",
		"ls --team t --api-url http://x/api -q": "run sandbox --api-url=http://x/api --scope=t rm web now",
		"ls --project 'a' --scope=$(x)":         "run sandbox '--scope=$(x)' \"--project='a'\" rm web now",
	} {
		a := newApp(nil)
		_, _, err := line.Arrange(a.rootCommand(), strings.Fields(words))
		require.NoError(t, err)
		got := a.screen.Filled("run " + screen.Try("rm %s", "web") + " now")
		if strings.Contains(words, "'a'") {
			assert.Contains(t, got, "'--scope=$(x)'")
			continue
		}
		assert.Equal(t, want, got)
	}
	a := newApp(nil)
	a.account.Given.Local = true
	assert.Equal(t, "sandbox local stop, sandbox --local rm NAME", a.screen.Filled(screen.Try("local stop")+", "+screen.Try("--local rm NAME")))
}
