package examples

import (
	"bytes"
	"crypto/subtle"
	"encoding/json"
	"fmt"
	"image/png"
	"net"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
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
	"github.com/go-vercel/sandbox/sandboxtest"
)

// programs are the examples that TestExamples runs, apart from those whose own
// test does.
var programs = []struct {
	name string // of the folder, and what follows it
	args []string
	env  []string
	code int
	need string   // a program that the emulator's machine has to have
	want []string // parts of the output, in this order
	not  []string // that are not in it
	// setUp gives further arguments and environment.
	setUp func(t *testing.T, srv *sandboxtest.Server) (args, env []string)
	check func(t *testing.T, args []string)
}{
	{
		name: "quickstart",
		want: []string{"Creating the sandbox", "step 3", "Stopping the sandbox", "Back in quickstart, with the same files", "step 3", "Deleting the sandbox"},
	},
	{
		name: "pipeline",
		want: []string{`"exitCode":0`, `"stdout":"apple\nbanana\ncherry\n"`, `"stderr":"checking…\n"`},
	},
	{
		name: "pipeline/failing", args: []string{"echo out; echo err >&2; exit 3", "echo never"}, code: 1,
		want: []string{`"exitCode":3`, `"stdout":"out\n","stderr":"err\n"`, "stopped at a command that failed"},
		not:  []string{"never"},
	},
	{
		name: "repl", need: "python3",
		want: []string{">>> numbers = ", `""`, ">>> numbers\n", `"[0, 1, 4, 9, 16]\n"`, `"0 1 4 9 16 "`, "TypeError"},
	},
	{
		name: "build", need: "git", args: []string{"./check.sh"}, code: 3,
		want: []string{"Building ", "Add a check", "checking ci=true", "Exit code 3"},
		setUp: func(t *testing.T, srv *sandboxtest.Server) (args, env []string) {
			return []string{"-repo", gitServer(t, srv, "")}, nil
		},
	},
	{
		name: "privaterepo", need: "git",
		want: []string{"Add a check", "origin", "check.sh"},
		not:  []string{"s3cret"},
		setUp: func(t *testing.T, srv *sandboxtest.Server) (args, env []string) {
			return []string{"-repo", gitServer(t, srv, "s3cret")}, []string{"GIT_TOKEN=s3cret"}
		},
	},
	{
		name: "privaterepo/refused", need: "git", code: 1,
		want: []string{"git clone failed"},
		not:  []string{"a-guess"},
		setUp: func(t *testing.T, srv *sandboxtest.Server) (args, env []string) {
			return []string{"-repo", gitServer(t, srv, "s3cret")}, []string{"GIT_TOKEN=a-guess"}
		},
	},
	{
		name: "forks",
		want: []string{"Setting the base up", "forks-red has:\nfrom the base\nand forks-red\n", "forks-blue has:\nfrom the base\nand forks-blue\n",
			"forks-base has:\nfrom the base\n"},
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
		name: "workspace", args: []string{"-delete"},
		want: []string{"Created", "1 notes, its worker runs: true", "Stopping", "Resumed", "2 notes, its worker runs: true", "Deleting"},
	},
	{
		name: "snapshots",
		want: []string{"Saved ", "After the migration: garbage", "After the rollback: version 1", "from the snapshot: version 1", "by automatic", "by manual"},
	},
	{
		name:  "packages",
		want:  []string{"/usr/local/bin/greet", "greet 1.0", "/usr/local/bin/greet", "greet 1.0"},
		setUp: namespaces,
	},
	{
		name: "charts", need: "python3",
		want: []string{"Drew 6 bars, 1145 in all", "Saved "},
		setUp: func(t *testing.T, _ *sandboxtest.Server) (args, env []string) {
			return []string{"-out", filepath.Join(t.TempDir(), "pictures")}, nil
		},
		check: func(t *testing.T, args []string) {
			f, err := os.Open(filepath.Join(args[1], "chart.png"))
			require.NoError(t, err)
			defer f.Close()
			picture, err := png.Decode(f)
			require.NoError(t, err)
			assert.Equal(t, 480, picture.Bounds().Dx())
			text, err := os.ReadFile(filepath.Join(args[1], "chart.svg"))
			require.NoError(t, err)
			assert.Contains(t, string(text), "<title>300.0</title>")
		},
	},
	{
		name: "lockdown", need: "curl",
		want:  []string{"Fetching ", "deny-all", "counted 16 bytes", "could not send it away"},
		not:   []string{"SENT IT AWAY"},
		setUp: network,
	},
	{
		name: "devserver", need: "node", args: []string{"-once"},
		want:  []string{"The server says: ready on port 3000", "It listens at http", "Hello from the sandbox, /first"},
		setUp: network, // else the port is the host's
	},
	{
		name: "preview", need: "python3", args: []string{"-once", "-addr", "127.0.0.1:0"},
		want:  []string{"new: 200 OK, Hello from hello", "stopped: 200 OK, Hello from hello"},
		setUp: network, // else the port is the host's
	},
	{
		name: "agent", need: "python3",
		want: []string{"TypeError", "Replaced one place in sum.py.", "sum: 42", "no question for a while: stopping", "back, with all files", "sum: 55"},
	},
	{
		name: "testing", need: "python3", args: []string{"print(sum(map(int, input().split())))"},
		want: []string{"right\n"},
	},
}

// TestExamples runs every example as its reader would, with the environment
// pointing to an emulator.
func TestExamples(t *testing.T) {
	bin := buildExamples(t)
	for _, p := range programs {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			if p.need != "" {
				needs.Programs(t, p.need)
			}
			if p.name == "workspace" {
				needs.GNU(t)
			}
			srv := sandboxtest.New(t, nil)
			args := p.args
			env := append(environment(srv), p.env...)
			if p.setUp != nil {
				moreArgs, moreEnv := p.setUp(t, srv)
				args, env = append(moreArgs, args...), append(env, moreEnv...)
			}
			folder, _, _ := strings.Cut(p.name, "/")
			cmd := exec.CommandContext(t.Context(), bin, args...)
			cmd.Args[0], cmd.Env = folder, env
			var output bytes.Buffer
			cmd.Stdout, cmd.Stderr = &output, &output
			_ = cmd.Run() // the code says it
			text := output.String()
			require.Equal(t, p.code, cmd.ProcessState.ExitCode(), "%s", text)
			rest := text
			for _, want := range p.want {
				_, after, found := strings.Cut(rest, want)
				require.True(t, found, "%q is not in, or not behind the others:\n%s", want, text)
				rest = after
			}
			for _, not := range p.not {
				assert.NotContains(t, text, not)
			}
			if p.check != nil {
				p.check(t, args)
			}
		})
	}
}

// buildExamples builds one program that is all of them, since linking each takes
// longer than running it. Its name says which it is.
func buildExamples(t *testing.T) (bin string) {
	t.Helper()
	dir := t.TempDir()
	here, err := filepath.Abs(".")
	require.NoError(t, err)
	replaced := map[string]string{}
	put := func(name, code string) {
		file := filepath.Join(dir, strings.ReplaceAll(name, "/", "_"))
		require.NoError(t, os.WriteFile(file, []byte(code), 0o600))
		replaced[filepath.Join(here, filepath.FromSlash(name))] = file
	}
	var imports, cases strings.Builder
	built := map[string]bool{}
	for _, p := range programs {
		folder, _, _ := strings.Cut(p.name, "/")
		if built[folder] {
			continue
		}
		built[folder] = true
		files, err := filepath.Glob(filepath.Join(folder, "*.go"))
		require.NoError(t, err)
		for _, name := range files {
			if strings.HasSuffix(name, "_test.go") {
				replaced[filepath.Join(here, name)] = "" // by nothing
				continue
			}
			code, err := os.ReadFile(name)
			require.NoError(t, err)
			text := regexp.MustCompile(`(?m)^package main$`).ReplaceAllLiteralString(string(code), "package program")
			put(filepath.ToSlash(name), strings.Replace(text, "\nfunc main() {", "\nfunc Main() {", 1))
		}
		fmt.Fprintf(&imports, "\t%s_ \"github.com/go-vercel/sandbox/examples/%[1]s\"\n", folder)
		fmt.Fprintf(&cases, "\tcase %q:\n\t\t%[1]s_.Main()\n", folder)
	}
	put("all/main.go", "package main\n\nimport (\n\t\"os\"\n\n"+imports.String()+")\n\nfunc main() {\n\tswitch os.Args[0] {\n"+cases.String()+"\t}\n}\n")
	overlay, err := json.Marshal(map[string]any{"Replace": replaced})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "overlay.json"), overlay, 0o600))
	bin = filepath.Join(dir, "examples.exe")
	// Without symbols, which take most of the time.
	out, err := exec.Command("go", "build", "-ldflags=-s -w", "-overlay", filepath.Join(dir, "overlay.json"), "-o", bin, "./all").CombinedOutput()
	require.NoError(t, err, "%s", out)
	return bin
}

// TestEveryExampleIsThere: a folder without a README or a test is not one.
func TestEveryExampleIsThere(t *testing.T) {
	mains, err := filepath.Glob("*/main.go")
	require.NoError(t, err)
	covered := map[string]bool{}
	for _, p := range programs {
		folder, _, _ := strings.Cut(p.name, "/")
		covered[folder] = true
	}
	index, err := os.ReadFile("README.md")
	require.NoError(t, err)
	for _, file := range mains {
		name := filepath.Dir(file)
		own, err := filepath.Glob(filepath.Join(name, "main_test.go"))
		require.NoError(t, err)
		assert.True(t, covered[name] || len(own) > 0, "%s is not run by a test", name)
		assert.FileExists(t, filepath.Join(name, "README.md"))
		assert.Contains(t, string(index), "("+name+")", "the list of examples")
	}
}

// environment is this process's, without credentials of its own.
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

// network skips an example that works only where a sandbox has a network of its
// own.
func network(t *testing.T, srv *sandboxtest.Server) (args, env []string) {
	testkit.Policies(t, srv)
	return nil, nil
}

// namespaces skips an example that works only where a sandbox has a root.
func namespaces(t *testing.T, srv *sandboxtest.Server) (args, env []string) {
	sb, err := srv.Client().Create(t.Context(), nil)
	require.NoError(t, err)
	testkit.NeedRoot(t, sb)
	return nil, nil
}

// gitServer serves a repository with one commit over smart HTTP, to those who
// have the password if there is one, and returns its address as seen from a
// sandbox.
func gitServer(t *testing.T, srv *sandboxtest.Server, password string) string {
	t.Helper()
	dir := t.TempDir()
	script := `
git init -q work && cd work
printf '#!/bin/sh\necho "checking ci=$CI"\nexit 3\n' > check.sh && chmod +x check.sh
git add . && git -c user.name=A -c user.email=a@example.com commit -qm 'Add a check'
git clone -q --bare . ../repo.git
git --exec-path`
	cmd := exec.Command("sh", "-ec", script)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	backend := &cgi.Handler{
		Path: filepath.Join(lastLine(string(out)), "git-http-backend"),
		Env:  []string{"GIT_PROJECT_ROOT=" + dir, "GIT_HTTP_EXPORT_ALL=1"},
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, given, _ := r.BasicAuth()
		if subtle.ConstantTimeCompare([]byte(given), []byte(password)) == 0 {
			w.Header().Set("WWW-Authenticate", `Basic realm="git"`)
			http.Error(w, "who are you?", http.StatusUnauthorized)
			return
		}
		backend.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	host := "host.internal"
	if srv.Mode() != sandboxtest.Namespace {
		host = "127.0.0.1"
	}
	_, port, err := net.SplitHostPort(server.Listener.Addr().String())
	require.NoError(t, err)
	return fmt.Sprintf("http://%s/repo.git", net.JoinHostPort(host, port))
}

func lastLine(s string) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return lines[len(lines)-1]
}
