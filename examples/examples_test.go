package examples

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/internal/test/needs"
	"github.com/go-vercel/sandbox/internal/test/testkit"
	"github.com/go-vercel/sandbox/internal/test/testmain"
	"github.com/go-vercel/sandbox/sandboxtest"
)

// programs are the examples. TestExamples runs those that have a want.
var programs = []struct {
	name  string // of the folder
	args  []string
	need  string   // a program that the emulator's machine must have
	want  []string // parts of the output, in this order
	setUp func(t *testing.T, srv *sandboxtest.Server)
}{
	{
		name: "quickstart",
		want: []string{"Creating the sandbox", "step 3", "Stopping the sandbox", "Back in quickstart, with the same files", "step 3", "Deleting the sandbox"},
	},
	{
		name: "repl", need: "python3",
		want: []string{">>> numbers = ", `""`, ">>> numbers\n", `"[0, 1, 4, 9, 16]\n"`, `"0 1 4 9 16 "`, "TypeError"},
	},
	{
		name: "drives",
		want: []string{
			"drives-first has the drive drives-shared (read-write):\ndrives-second",
			"(read-write):\nmeasured by the first\n",
			"drives-reader has the drive drives-shared (snapshot):\nmeasured by the first\nmeasured by the second\n",
		},
	},
	{
		name: "snapshots",
		want: []string{"Saved ", "After the migration: garbage", "After the rollback: version 1", "from the snapshot: version 1", "by automatic", "by manual"},
	},
	{
		name: "devserver", need: "node", args: []string{"-once"},
		want:  []string{"The server says: ready on port 3000", "It listens at http", "Hello from the sandbox, /first"},
		setUp: needsOwnNetwork, // without its own network the sandbox would use the host's port
	},
	{
		name: "preview", need: "python3", args: []string{"-once", "-addr", "127.0.0.1:0"},
		want:  []string{"new: 200 OK, Hello from hello", "stopped: 200 OK, Hello from hello"},
		setUp: needsOwnNetwork, // without its own network the sandbox would use the host's port
	},
	{
		name: "agent", need: "python3",
		want: []string{"TypeError", "Replaced one place in sum.py.", "sum: 42", "no question for a while: stopping", "back, with all files", "sum: 55"},
	},
	{
		name: "users",
		want: []string{"The reader looks at the private notes: ", "permission denied", "The shared folder has a greeting from writer"},
		setUp: func(t *testing.T, srv *sandboxtest.Server) {
			if !srv.Enforces().Users {
				needs.Other(t, "sandboxes have one user here")
			}
		},
	},
	{
		name: "proxy", need: "curl",
		want: []string{"my token is PLACEHOLDER\n", "welcome\n", "who are you?\n", "Forbidden\n"},
	},
	{
		name: "shell", // TestShell runs it
	},
	{
		name: "runner", // TestRunnerLife and others run it
	},
	{
		name: "testing", need: "python3", args: []string{"print(sum(map(int, input().split())))"},
		want: []string{"right\n"},
	},
}

// TestExamples runs the examples as a reader would, with an emulator in the
// environment.
func TestExamples(t *testing.T) {
	t.Parallel()
	for _, p := range programs {
		if p.want == nil {
			continue
		}
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			if p.need != "" {
				needs.Programs(t, p.need)
			}
			srv := sandboxtest.New(t, nil)
			if p.setUp != nil {
				p.setUp(t, srv)
			}
			cmd := exec.CommandContext(t.Context(), bin, p.args...)
			cmd.Args[0], cmd.Env = p.name, environment(srv)
			var output bytes.Buffer
			cmd.Stdout, cmd.Stderr = &output, &output
			_ = cmd.Run() // the exit code is checked below
			text := output.String()
			require.Zero(t, cmd.ProcessState.ExitCode(), "%s", text)
			rest := text
			for _, want := range p.want {
				_, after, found := strings.Cut(rest, want)
				require.True(t, found, "%q is missing, or before the others:\n%s", want, text)
				rest = after
			}
		})
	}
}

// bin is one program that contains all examples, because linking each takes longer
// than running it. Args[0] selects the example.
var bin string

func TestMain(m *testing.M) { testmain.Main(withPrograms{m}) }

type withPrograms struct{ tests *testing.M }

func (m withPrograms) Run() int {
	dir, err := os.MkdirTemp("", "examples")
	if err == nil {
		defer os.RemoveAll(dir)
		bin, err = buildExamples(dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.tests.Run()
}

// removeRunnerFlags is code that removes the flags of package runner for the other examples.
const removeRunnerFlags = `	if os.Args[0] != "runner" {
		flag.CommandLine = flag.NewFlagSet(os.Args[0], flag.ExitOnError)
	}
`

func buildExamples(dir string) (bin string, err error) {
	here, err := filepath.Abs(".")
	if err != nil {
		return "", err
	}
	replaced := map[string]string{}
	put := func(name, code string) error {
		file := filepath.Join(dir, strings.ReplaceAll(name, "/", "_"))
		replaced[filepath.Join(here, filepath.FromSlash(name))] = file
		return os.WriteFile(file, []byte(code), 0o600)
	}
	var imports, cases strings.Builder
	for _, p := range programs {
		files, err := filepath.Glob(filepath.Join(p.name, "*.go"))
		if err != nil {
			return "", err
		}
		for _, name := range files {
			if strings.HasSuffix(name, "_test.go") {
				replaced[filepath.Join(here, name)] = "" // removes the file
				continue
			}
			code, err := os.ReadFile(name)
			if err != nil {
				return "", err
			}
			text := regexp.MustCompile(`(?m)^package main$`).ReplaceAllLiteralString(string(code), "package program")
			if err := put(filepath.ToSlash(name), strings.Replace(text, "\nfunc main() {", "\nfunc Main() {", 1)); err != nil {
				return "", err
			}
		}
		fmt.Fprintf(&imports, "\t%s_ \"github.com/go-vercel/sandbox/examples/%[1]s\"\n", p.name)
		fmt.Fprintf(&cases, "\tcase %q:\n\t\t%[1]s_.Main()\n", p.name)
	}
	err = put("all/main.go", "package main\n\nimport (\n\t\"flag\"\n\t\"os\"\n\n"+imports.String()+")\n\nfunc main() {\n"+removeRunnerFlags+"\tswitch os.Args[0] {\n"+cases.String()+"\t}\n}\n")
	if err != nil {
		return "", err
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replaced})
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(filepath.Join(dir, "overlay.json"), overlay, 0o600); err != nil {
		return "", err
	}
	bin = filepath.Join(dir, "examples.exe")
	// Without symbols, which take most of the time.
	out, err := exec.Command("go", "build", "-ldflags=-s -w", "-overlay", filepath.Join(dir, "overlay.json"), "-o", bin, "./all").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	return bin, nil
}

// TestEveryExampleIsThere: each example is run by a test and is in the list.
func TestEveryExampleIsThere(t *testing.T) {
	mains, err := filepath.Glob("*/main.go")
	require.NoError(t, err)
	covered := map[string]bool{}
	for _, p := range programs {
		covered[p.name] = true
	}
	index, err := os.ReadFile("README.md")
	require.NoError(t, err)
	for _, file := range mains {
		name := filepath.Dir(file)
		own, err := filepath.Glob(filepath.Join(name, "main_test.go"))
		require.NoError(t, err)
		assert.True(t, covered[name] || len(own) > 0, "%s is not run by a test", name)
		assert.Contains(t, string(index), "("+name+")", "the list of examples")
	}
}

// environment returns this process's environment with the credentials of srv only.
func environment(srv *sandboxtest.Server) []string {
	var env []string
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, "VERCEL_") {
			env = append(env, kv)
		}
	}
	c := srv.Credentials()
	return append(env, "VERCEL_SANDBOX_BASE_URL="+srv.URL, "VERCEL_TOKEN="+c.Token, "VERCEL_TEAM_ID="+c.TeamID, "VERCEL_PROJECT_ID="+c.ProjectID)
}

// needsOwnNetwork skips an example unless the emulator's sandboxes have their own network.
func needsOwnNetwork(t *testing.T, srv *sandboxtest.Server) {
	testkit.Policies(t, srv)
}
