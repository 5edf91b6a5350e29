package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/sandboxtest"
)

// asProgram is an environment variable that makes the test binary act as the program.
const asProgram = "SANDBOX_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == asWorker {
		workerMain()
	}
	if os.Getenv(asProgram) == "1" || len(os.Args) == 5 && os.Args[1] == "__local-daemon" { // the daemon does not inherit this variable
		main()
	}
	testscript.Main(m, map[string]func(){"sandbox": main})
}

// workspace is a folder in which the program runs, with an emulator that it uses.
type workspace struct {
	t         *testing.T
	server    *sandboxtest.Server
	dir, home string
	env       []string
	options   []string // options at the start of every command line

	snapshot string // the first snapshot of the sandbox c2; set when it is first needed

	looked int // the number of requests that seen has returned

	worker worker
}

// newWorkspace creates a folder that is linked to the emulator's project. opts may be nil.
func newWorkspace(t *testing.T, opts *sandboxtest.Options) *workspace {
	t.Helper()
	d := &workspace{t: t, dir: t.TempDir(), home: t.TempDir()}
	d.server = sandboxtest.New(t, opts)
	t.Cleanup(d.worker.end)
	for _, key := range []string{"PATH", "TMPDIR", "SYSTEMROOT"} {
		if v, ok := os.LookupEnv(key); ok {
			d.env = append(d.env, key+"="+v)
		}
	}
	d.env = append(d.env, asProgram+"=1", "HOME="+d.home, "TZ=UTC", "LANG=C.UTF-8",
		"VERCEL_SANDBOX_BASE_URL="+d.server.URL, "VERCEL_AUTH_TOKEN="+d.server.Credentials().Token)
	d.write(".vercel/project.json", `{"orgId":"team_emulator","projectId":"prj_emulator"}`)
	return d
}

// unset removes a variable from the environment.
func (d *workspace) unset(name string) {
	d.env = slices.DeleteFunc(d.env, func(v string) bool { return strings.HasPrefix(v, name+"=") })
}

func (d *workspace) write(name, content string) {
	d.t.Helper()
	name = filepath.Join(d.dir, name)
	require.NoError(d.t, os.MkdirAll(filepath.Dir(name), 0o755))
	require.NoError(d.t, os.WriteFile(name, []byte(content), 0o644))
}

// outcome is the result of a run of the program.
type outcome struct {
	code           int
	stdout, stderr string
}

func (d *workspace) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, os.Args[0], slices.Concat(d.options, args)...)
	cmd.Dir, cmd.Env = d.dir, d.env
	return cmd
}

// run runs the program with some standard input.
func (d *workspace) run(stdin string, args ...string) outcome {
	d.t.Helper()
	if got, ran := d.runInWorker(d.line(stdin, args...)); ran {
		return got
	}
	cmd := d.command(d.t.Context(), args...)
	cmd.Stdin = strings.NewReader(stdin)
	return finish(d.t, cmd)
}

// finish runs a program to its end, which may be an error.
func finish(t *testing.T, cmd *exec.Cmd) outcome {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		require.NoError(t, err)
	}
	return outcome{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

// ok runs the program, which must succeed, and returns standard output.
func (d *workspace) ok(args ...string) string {
	d.t.Helper()
	got := d.run("", args...)
	require.Zero(d.t, got.code, "sandbox %s\n%s", strings.Join(args, " "), got.stderr)
	return got.stdout
}

// waitForLog waits until a command in the sandbox c has written a line that matches a
// pattern, and returns the line.
func (d *workspace) waitForLog(id, pattern string) string {
	d.t.Helper()
	sb, err := d.server.Client().Get(d.t.Context(), "c", &sandbox.GetOptions{NoResume: true})
	require.NoError(d.t, err)
	command, err := sb.GetCommand(d.t.Context(), id)
	require.NoError(d.t, err)
	line, err := command.WaitForLog(d.t.Context(), regexp.MustCompile(pattern))
	require.NoError(d.t, err)
	return strings.TrimSpace(line)
}

// seen returns the requests since its last call. It includes requests that are still being
// handled although their response was sent.
func (d *workspace) seen() []sandboxtest.Request {
	all := d.server.Requests()
	defer func() { d.looked = len(all) }()
	return all[d.looked:]
}
