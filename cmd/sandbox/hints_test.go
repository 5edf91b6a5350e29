package main

import (
	"context"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/internal/test/needs"
	"github.com/go-vercel/sandbox/sandboxtest"
)

// hintRow says how the line of a hint is got.
type hintRow struct {
	line      string // that prints it, at a desk with the sandboxes box, which runs, and still, which is stopped
	code      int    // of the hint, when it is run
	elsewhere string // why it is not run here
}

const (
	opensShell  = "opens a shell"
	atTerminal  = "is printed at a terminal alone"
	ofAnAccount = "is about logins"
	ofDaemon    = "is about the emulator of --local: see the script local"
)

// hintRows are the lines that hints have, as they stand in the source.
var hintRows = map[string]hintRow{
	"create": {line: "create claude"}, "connect NAME": {elsewhere: opensShell}, "ssh %s": {elsewhere: opensShell},
	"whoami": {elsewhere: ofAnAccount}, "login": {elsewhere: ofAnAccount}, "login --token -": {elsewhere: ofAnAccount}, "sh": {elsewhere: atTerminal}, "cp %s -": {elsewhere: atTerminal},
	"doctor":                              {line: "--api-url=http://127.0.0.1:1/api ls", code: 1},
	"ls --all":                            {line: "exec nosuch true"},
	"config keep-last-snapshots %s COUNT": {line: "config keep-last-snapshots-for box 7d"},
	"exec %s -- COMMAND":                  {line: "ps still"},
	"run -i -- %s":                        {line: "sh -- true"},
	"run -- COMMAND":                      {line: "sh"},
	"exec %s ls %s":                       {line: "cp box:folder/nosuch ."},
	"ps NAME":                             {line: "snapshot --stop lost"},
	"ps --all NAME":                       {line: "wait box cmd_nosuch"},
	"drives ls":                           {line: "create --mount nodrive:/x"},
	"snapshots ls":                        {line: "create --snapshot snap_nosuch"},
	"rm NAME":                             {elsewhere: "needs a sandbox that a machine has lost"},
	"rm %s":                               {line: "run --name made nosuchprogram"},
	"run --image %s -- COMMAND":           {line: "run --name image vercel/sandbox/node:24"},
	"snapshot --stop %s":                  {line: "fork box"},
	"url --publish %s %d":                 {elsewhere: "is printed while a port is forwarded: TestPortForwardMistakes"},
	"port-forward %s %d":                  {elsewhere: "goes on until it is interrupted: TestPortForward"},
	"snapshots list --name %s":            {line: "snapshot --stop lost"},
	"local logs":                          {elsewhere: ofDaemon}, "local stop": {elsewhere: ofDaemon}, "local restart": {elsewhere: ofDaemon}, "--local rm NAME": {elsewhere: ofDaemon},
	"stop NAME":    {elsewhere: "is printed when a signal was only half sent"},
	"logs NAME %s": {elsewhere: "is printed when the service goes away: TestServerGone"},
	"snapshots tree %s --cursor %s --sort-order %s": {line: "snapshots tree still --limit 1"},
}

// hintsInSource are the lines of hints, which one function makes.
func hintsInSource(t *testing.T) (formats []string) {
	t.Helper()
	files, err := filepath.Glob("internal/cli/*.go")
	require.NoError(t, err)
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		require.NoError(t, err)
		ast.Inspect(parsed, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			if called, ok := call.Fun.(*ast.Ident); !ok || called.Name != "try" {
				return true
			}
			text, err := strconv.Unquote(call.Args[0].(*ast.BasicLit).Value)
			require.NoError(t, err)
			formats = append(formats, text)
			return true
		})
	}
	slices.Sort(formats)
	return slices.Compact(formats)
}

// inHint stands for what is to be filled in of a hint.
var inHint = strings.NewReplacer("NAME:FILE FILE", "box:file got-file", "NAME", "box", "COMMAND", "true", "COUNT", "2")

// TestHintsRun runs the lines of hints as they were printed, by a shell. They have the
// project that the line before them had, and work.
func TestHintsRun(t *testing.T) {
	t.Parallel()
	needs.Programs(t, "sh")
	formats := hintsInSource(t)
	assert.ElementsMatch(t, formats, slices.Collect(maps.Keys(hintRows)), "each line of a hint has a row")

	d := newDesk(t, nil)
	require.NoError(t, os.Mkdir(filepath.Join(d.dir, "bin"), 0o755))
	program, err := filepath.Abs(os.Args[0])
	require.NoError(t, err)
	require.NoError(t, os.Symlink(program, filepath.Join(d.dir, "bin", "sandbox")))
	d.env = append(d.env, "PATH="+filepath.Join(d.dir, "bin")+string(filepath.ListSeparator)+os.Getenv("PATH"))
	const project = "--project=prj_named"
	for _, line := range []string{
		"create --silent --name box --timeout 1h", "create --silent --name still", "create --silent --name lost", "config keep-last-snapshots still 5",
		"snapshot --stop still", "start still", "snapshot --stop still", "start still", "snapshot --stop still", // so that its tree has a page more
	} {
		d.ok(append([]string{project}, strings.Fields(line)...)...)
	}
	d.ok(project, "exec", "box", "--", "sh", "-c", "mkdir -p folder/.vscode; echo x >folder/.vscode/tasks.json; echo x >folder/f; echo x >file")
	for _, format := range formats {
		row := hintRows[format]
		if row.line == "" {
			assert.NotEmpty(t, row.elsewhere, format)
			continue
		}
		t.Run(format, func(t *testing.T) {
			if strings.HasSuffix(row.line, " lost") {
				defer d.server.Inject(sandboxtest.Fault{Operation: sandboxtest.CreateSnapshot, ActThenStatus: 502})()
			}
			said := d.run("", append([]string{project}, strings.Fields(row.line)...)...)
			pattern := strings.NewReplacer("%s", "('[^']*'|[^\\s;`]+)", "%d", `\d+`).Replace(regexp.QuoteMeta(format))
			printed := regexp.MustCompile(`sandbox (--\S+ )*` + pattern).FindString(said.stderr)
			require.NotEmpty(t, printed, "sandbox %s prints no such hint: %s", row.line, said.stderr)
			assert.Contains(t, printed, project)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			cmd := exec.CommandContext(ctx, "sh", "-c", inHint.Replace(printed))
			cmd.Dir, cmd.Env = d.dir, d.env
			got := finish(t, cmd)
			assert.Equal(t, row.code, got.code, "%s: %s", printed, got.stderr)
		})
	}
}
