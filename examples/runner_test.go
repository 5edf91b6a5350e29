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

// bed is the program with an emulator.
type bed struct {
	*testing.T
	srv   *sandboxtest.Server
	traps string // a folder of programs that nothing may start
	seen  int    // requests that looked has judged
}

func (b *bed) command(args ...string) *exec.Cmd {
	cmd := exec.CommandContext(b.Context(), bin, args...)
	cmd.Args[0], cmd.Env = "runner", append(environment(b.srv), "PATH="+b.traps)
	return cmd
}

func (b *bed) run(args ...string) (code int, stdout, stderr string) {
	b.Helper()
	var out, complaints strings.Builder
	cmd := b.command(args...)
	cmd.Stdout, cmd.Stderr = &out, &complaints
	_ = cmd.Run() // the code says it
	return cmd.ProcessState.ExitCode(), out.String(), complaints.String()
}

// looked reports whether no request since the last call has changed or started
// anything.
func (b *bed) looked() bool {
	all := b.srv.Requests()[b.seen:]
	b.seen += len(all)
	for _, r := range all {
		if r.Method != http.MethodGet || r.Query.Get("resume") == "true" {
			return false
		}
	}
	return len(all) > 0
}

func (b *bed) left() map[string]sandbox.Status {
	b.Helper()
	all := map[string]sandbox.Status{}
	for info, err := range b.srv.Client().List(b.Context(), nil) {
		require.NoError(b, err)
		all[info.Name] = info.Status
	}
	return all
}

func newBed(t *testing.T) *bed {
	b := &bed{T: t, srv: sandboxtest.New(t, nil), traps: t.TempDir()}
	// Nothing of the machine is started that could read the token.
	for _, name := range []string{"node", "npx", "sandbox", "vercel"} {
		require.NoError(t, os.WriteFile(filepath.Join(b.traps, name), []byte("#!/bin/sh\n: >'"+b.traps+"/taken'\n"), 0o700)) //nolint:gosec // a program
	}
	t.Cleanup(func() { assert.NoFileExists(t, filepath.Join(b.traps, "taken")) })
	return b
}

// TestRunnerLife is the life of a sandbox of a runner: created with a claim, filled from
// an archive, used, kept, resumed by its name, and deleted.
func TestRunnerLife(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	code, _, stderr := b.run("doctor")
	assert.Zero(t, code, stderr)
	assert.True(t, b.looked())

	src := archiveOf(t, "file", "from the archive\n")
	code, stdout, stderr := b.run("-name", "ci", "-keep", "-archive", src, "run", "sh", "-c", "cat file; echo made >built; echo oops >&2; exit 3")
	assert.Equal(t, 3, code)
	assert.Equal(t, "from the archive\n", stdout)
	assert.Contains(t, stderr, "oops\nrunner: sh: exit code 3 after \"oops\\n\"\n")
	kept := map[string]sandbox.Status{"ci": sandbox.StatusStopped}
	assert.Equal(t, kept, b.left())

	b.seen = len(b.srv.Requests())
	code, stdout, _ = b.run("list")
	assert.Zero(t, code)
	assert.Equal(t, "ci stopped\n", stdout)
	assert.True(t, b.looked())
	code, _, stderr = b.run("-owner", "other", "-name", "ci", "run", "true")
	assert.Equal(t, 64, code)
	assert.Contains(t, stderr, "sandbox ci is not other's")
	_, stdout, _ = b.run("-owner", "other", "cleanup")
	assert.Empty(t, stdout)
	assert.True(t, b.looked(), "another's sandbox is left alone")
	assert.Equal(t, kept, b.left())

	code, stdout, _ = b.run("-name", "ci", "run", "cat", "built", "file")
	assert.Zero(t, code)
	assert.Equal(t, "made\nfrom the archive\n", stdout)
	assert.Empty(t, b.left())
}

// TestRunnerCleanup deletes what has the tag, and nothing else.
func TestRunnerCleanup(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	_, err := b.srv.Client().Create(t.Context(), &sandbox.CreateOptions{Name: "stranger"})
	require.NoError(t, err)
	src := archiveOf(t, "file", "")
	code, _, stderr := b.run("-name", "one", "-keep", "-archive", src, "run", "true")
	assert.Zero(t, code, stderr)
	assert.Len(t, b.left(), 2)
	code, _, stderr = b.run("cleanup")
	assert.Zero(t, code, stderr)
	assert.Equal(t, map[string]sandbox.Status{"stranger": sandbox.StatusRunning}, b.left())
}

// TestRunnerErrors: the exit code tells whose fault it is, and no sandbox is left.
func TestRunnerErrors(t *testing.T) {
	t.Parallel()
	b := newBed(t)
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
		code, _, stderr := b.run(c.args...)
		assert.Equal(t, c.code, code, name)
		assert.Contains(t, stderr, c.stderr, name)
	}
	allow := b.srv.Inject(sandboxtest.Fault{Status: http.StatusUnauthorized, Code: "forbidden"})
	code, _, stderr := b.run("doctor")
	allow()
	assert.Equal(t, 77, code, stderr)
	allow = b.srv.Inject(sandboxtest.Fault{Status: http.StatusPaymentRequired, Code: "payment_required"})
	code, _, stderr = b.run("doctor")
	allow()
	assert.Equal(t, 69, code, stderr)
	nobody := b.command("doctor")
	nobody.Env = append(nobody.Env, "VERCEL_SANDBOX_BASE_URL=http://127.0.0.1:1")
	_ = nobody.Run()
	assert.Equal(t, 75, nobody.ProcessState.ExitCode())
	b.seen = len(b.srv.Requests())
	for _, token := range []string{"VERCEL_TOKEN", "VERCEL_AUTH_TOKEN"} { // alone, without and with a search for the project
		lone := b.command("doctor")
		lone.Dir = t.TempDir()
		lone.Env = append(lone.Env, "VERCEL_PROJECT_ID=", "VERCEL_TEAM_ID=", "VERCEL_TOKEN=", "VERCEL_AUTH_TOKEN=", "VERCEL_OIDC_TOKEN=", token+"="+b.srv.Credentials().Token)
		out, _ := lone.CombinedOutput()
		assert.Equal(t, 77, lone.ProcessState.ExitCode(), "%s", out)
	}
	assert.True(t, b.looked(), "no project is created")
	assert.Empty(t, b.left())
}

// TestRunnerInterrupt: Ctrl-C ends the command in the sandbox, and leaves no sandbox.
func TestRunnerInterrupt(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	cmd := b.command("-keep", "-name", "ci", "-archive", archiveOf(t, "file", ""), "run", "sh", "-c", "echo begun; sleep 1000; touch survived")
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	line, err := bufio.NewReader(stdout).ReadString('\n')
	require.NoError(t, err)
	assert.Equal(t, "begun\n", line)
	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	_ = cmd.Wait()
	assert.Equal(t, 130, cmd.ProcessState.ExitCode())
	assert.Equal(t, map[string]sandbox.Status{"ci": sandbox.StatusStopped}, b.left())
	killed := slices.IndexFunc(b.srv.Requests(), func(r sandboxtest.Request) bool {
		return r.Operation == sandboxtest.RunCommand && bytes.Contains(r.Body, []byte("sig=$1"))
	})
	stopped := slices.IndexFunc(b.srv.Requests(), func(r sandboxtest.Request) bool { return r.Operation == sandboxtest.StopSession })
	assert.Positive(t, killed)
	assert.Less(t, killed, stopped, "the command is killed, and not only its session stopped")
}

// archiveOf makes a .tgz of one file.
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
