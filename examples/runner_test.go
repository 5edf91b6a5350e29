package examples

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/sandboxtest"
)

// fixture runs the program with an emulator.
type fixture struct {
	*testing.T
	srv   *sandboxtest.Server
	traps string // a folder of programs that must not be started
	seen  int    // the number of requests that changedNothing has checked
}

func (f *fixture) command(args ...string) *exec.Cmd {
	cmd := exec.CommandContext(f.Context(), bin, args...)
	cmd.Args[0], cmd.Env = "runner", append(environment(f.srv), "PATH="+f.traps)
	return cmd
}

func (f *fixture) run(args ...string) (code int, stdout, stderr string) {
	f.Helper()
	var out, complaints strings.Builder
	cmd := f.command(args...)
	cmd.Stdout, cmd.Stderr = &out, &complaints
	_ = cmd.Run() // the caller checks the exit code
	return cmd.ProcessState.ExitCode(), out.String(), complaints.String()
}

// changedNothing reports whether the requests since the last call changed and started
// nothing.
func (f *fixture) changedNothing() bool {
	all := f.srv.Requests()[f.seen:]
	f.seen += len(all)
	for _, r := range all {
		if r.Method != http.MethodGet || r.Query.Get("resume") == "true" {
			return false
		}
	}
	return len(all) > 0
}

// sandboxes returns the status of every sandbox.
func (f *fixture) sandboxes() map[string]sandbox.Status {
	f.Helper()
	all := map[string]sandbox.Status{}
	for info, err := range f.srv.Client().List(f.Context(), nil) {
		require.NoError(f, err)
		all[info.Name] = info.Status
	}
	return all
}

func newFixture(t *testing.T) *fixture {
	f := &fixture{T: t, srv: sandboxtest.New(t, nil), traps: t.TempDir()}
	// The program must not start one of these, which could read the token.
	for _, name := range []string{"node", "npx", "sandbox", "vercel"} {
		require.NoError(t, os.WriteFile(filepath.Join(f.traps, name), []byte("#!/bin/sh\n: >'"+f.traps+"/taken'\n"), 0o700)) //nolint:gosec // a program
	}
	t.Cleanup(func() { assert.NoFileExists(t, filepath.Join(f.traps, "taken")) })
	return f
}

// TestRunnerLife creates a sandbox with a tag, fills it from an archive, uses it, keeps it,
// resumes it by its name, and deletes it.
func TestRunnerLife(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	code, _, stderr := f.run("doctor")
	assert.Zero(t, code, stderr)
	assert.True(t, f.changedNothing())

	src := archiveOf(t, "file", "from the archive\n")
	code, stdout, stderr := f.run("-name", "ci", "-keep", "-archive", src, "run", "sh", "-c", "cat file; echo made >built; echo oops >&2; exit 3")
	assert.Equal(t, 3, code)
	assert.Equal(t, "from the archive\n", stdout)
	assert.Contains(t, stderr, "oops\nrunner: sh: exit code 3 after \"oops\\n\"\n")
	kept := map[string]sandbox.Status{"ci": sandbox.StatusStopped}
	assert.Equal(t, kept, f.sandboxes())

	f.seen = len(f.srv.Requests())
	code, stdout, _ = f.run("list")
	assert.Zero(t, code)
	assert.Equal(t, "ci stopped\n", stdout)
	assert.True(t, f.changedNothing())
	code, _, stderr = f.run("-owner", "other", "-name", "ci", "run", "true")
	assert.Equal(t, 64, code)
	assert.Contains(t, stderr, "sandbox ci is not owned by other")
	_, stdout, _ = f.run("-owner", "other", "cleanup")
	assert.Empty(t, stdout)
	assert.True(t, f.changedNothing(), "another's sandbox is left alone")
	assert.Equal(t, kept, f.sandboxes())

	code, stdout, _ = f.run("-name", "ci", "run", "cat", "built", "file")
	assert.Zero(t, code)
	assert.Equal(t, "made\nfrom the archive\n", stdout)
	assert.Empty(t, f.sandboxes())
}

// TestRunnerCleanup: cleanup deletes the sandboxes with the tag, and no others.
func TestRunnerCleanup(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	_, err := f.srv.Client().Create(t.Context(), &sandbox.CreateOptions{Name: "stranger"})
	require.NoError(t, err)
	src := archiveOf(t, "file", "")
	code, _, stderr := f.run("-name", "one", "-keep", "-archive", src, "run", "true")
	assert.Zero(t, code, stderr)
	assert.Len(t, f.sandboxes(), 2)
	code, _, stderr = f.run("cleanup")
	assert.Zero(t, code, stderr)
	assert.Equal(t, map[string]sandbox.Status{"stranger": sandbox.StatusRunning}, f.sandboxes())
}

// TestRunnerErrors: the exit code depends on the kind of error, and no sandbox remains.
func TestRunnerErrors(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	src := archiveOf(t, "file", "")
	for name, c := range map[string]struct {
		code   int
		stderr string
		args   []string
	}{
		"caller":  {64, "no-such-program", []string{"-archive", src, "run", "no-such-program"}},
		"archive": {64, "exit status", []string{"-archive", os.Args[0], "run", "true"}},
		"usage":   {64, "say run COMMAND", []string{"run"}},
	} {
		code, _, stderr := f.run(c.args...)
		assert.Equal(t, c.code, code, name)
		assert.Contains(t, stderr, c.stderr, name)
	}
	allow := f.srv.Inject(sandboxtest.Fault{Status: http.StatusUnauthorized, Code: "forbidden"})
	code, _, stderr := f.run("doctor")
	allow()
	assert.Equal(t, 77, code, stderr)
	allow = f.srv.Inject(sandboxtest.Fault{Status: http.StatusPaymentRequired, Code: "payment_required"})
	code, _, stderr = f.run("doctor")
	allow()
	assert.Equal(t, 69, code, stderr)
	nobody := f.command("doctor")
	nobody.Env = append(nobody.Env, "VERCEL_SANDBOX_BASE_URL=http://127.0.0.1:1")
	_ = nobody.Run()
	assert.Equal(t, 75, nobody.ProcessState.ExitCode())
	f.seen = len(f.srv.Requests())
	for _, token := range []string{"VERCEL_TOKEN", "VERCEL_AUTH_TOKEN"} { // without a project; only the second variable starts a search for one
		lone := f.command("doctor")
		lone.Dir = t.TempDir()
		lone.Env = append(lone.Env, "VERCEL_PROJECT_ID=", "VERCEL_TEAM_ID=", "VERCEL_TOKEN=", "VERCEL_AUTH_TOKEN=", "VERCEL_OIDC_TOKEN=", token+"="+f.srv.Credentials().Token)
		out, _ := lone.CombinedOutput()
		assert.Equal(t, 77, lone.ProcessState.ExitCode(), "%s", out)
	}
	assert.True(t, f.changedNothing(), "no project is created")
	assert.Empty(t, f.sandboxes())
}

// TestRunnerInterrupt: Ctrl-C kills the command in the sandbox and stops the sandbox.
func TestRunnerInterrupt(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	cmd := f.command("-keep", "-name", "ci", "-archive", archiveOf(t, "file", ""), "run", "sh", "-c", "echo begun; sleep 1000; touch survived")
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	line, err := bufio.NewReader(stdout).ReadString('\n')
	require.NoError(t, err)
	assert.Equal(t, "begun\n", line)
	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	_ = cmd.Wait()
	assert.Equal(t, 130, cmd.ProcessState.ExitCode())
	assert.Equal(t, map[string]sandbox.Status{"ci": sandbox.StatusStopped}, f.sandboxes())
	killed := slices.IndexFunc(f.srv.Requests(), func(r sandboxtest.Request) bool {
		return r.Operation == sandboxtest.RunCommand && bytes.Contains(r.Body, []byte("sig=$1"))
	})
	stopped := slices.IndexFunc(f.srv.Requests(), func(r sandboxtest.Request) bool { return r.Operation == sandboxtest.StopSession })
	assert.Positive(t, killed)
	assert.Less(t, killed, stopped, "the command is killed before its session stops")
}

// archiveOf creates a .tgz with one file.
func archiveOf(t *testing.T, name, content string) string {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	require.NoError(t, w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(content))}))
	_, err := w.Write([]byte(content))
	require.NoError(t, err)
	require.NoError(t, w.Close())
	require.NoError(t, z.Close())
	file := filepath.Join(t.TempDir(), "src.tgz")
	require.NoError(t, os.WriteFile(file, b.Bytes(), 0o600))
	return file
}
