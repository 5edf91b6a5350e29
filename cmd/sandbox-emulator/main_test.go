package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/auth"
	"github.com/go-vercel/sandbox/internal/test/needs"
	"github.com/go-vercel/sandbox/internal/test/testmain"
)

// asProgram is an environment variable that makes the test binary act as the program.
const asProgram = "SANDBOX_EMULATOR_TEST_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) == "1" {
		os.Unsetenv(asProgram)
		main()
	}
	needs.Overlap()
	testmain.Main(m)
}

func program(t *testing.T, args ...string) *exec.Cmd {
	if runtime.GOOS == "windows" {
		needs.Other(t, "the commands of these tests are those of Unix")
	}
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), asProgram+"=1", "NODE_OPTIONS=", "VERCEL_OIDC_TOKEN=the-users-own", "VERCEL_OIDC_TOKEN_FILE=the-users-own",
		"VERCEL_AUTH_TOKEN=the-users-own", "SANDBOX_TOKEN=the-users-own", "SANDBOX_SCOPE=the-users-own", "SANDBOX_PROJECT=the-users-own")
	return cmd
}

// outcome runs the program to its end and returns its output and exit code.
func outcome(t *testing.T, args ...string) (stdout, stderr string, code int) {
	cmd := program(t, args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		require.IsType(t, new(exec.ExitError), err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

func TestRunsACommand(t *testing.T) {
	t.Parallel()
	stdout, stderr, code := outcome(t, "sh", "-c", `echo "$VERCEL_SANDBOX_BASE_URL|$VERCEL_TOKEN|$VERCEL_TEAM_ID|$VERCEL_PROJECT_ID|$VERCEL_OIDC_TOKEN"; exit 7`)
	assert.Equal(t, 7, code, stderr)
	fields := strings.Split(strings.TrimSpace(stdout), "|")
	require.Len(t, fields, 5)
	assert.Regexp(t, `^http://127\.0\.0\.1:\d+/api$`, fields[0])
	for _, f := range fields[1:4] {
		assert.NotEmpty(t, f)
	}
	assert.Equal(t, 2, strings.Count(fields[4], "."), "a token in the form of the platform's")

	stdout, _, _ = outcome(t, "-mode", "folder", "env")
	assert.NotContains(t, stdout, "the-users-own", "the command would use it instead of the server's token")

	_, _, code = outcome(t, "-mode", "folder", "sh", "-c", "kill -9 $$")
	assert.Equal(t, 137, code)
	_, stderr, code = outcome(t, "-mode", "folder", "no-such-program")
	assert.Equal(t, 127, code)
	assert.Contains(t, stderr, "no-such-program")
	_, _, code = outcome(t, "-mode", "folder", "/etc")
	assert.Equal(t, 126, code)
	_, _, code = outcome(t, "-no-such-flag")
	assert.Equal(t, 2, code)
	_, stderr, code = outcome(t, "-mode", "virtual", "true")
	assert.Equal(t, 2, code)
	assert.Contains(t, stderr, "virtual")
	_, stderr, code = outcome(t, "-h")
	assert.Equal(t, 0, code)
	assert.Contains(t, stderr, "usage")
}

func TestImageFlag(t *testing.T) {
	t.Parallel()
	needs.Programs(t, "curl")
	create := `curl -s -H "Authorization: Bearer $VERCEL_TOKEN" -H "Content-Type: application/json" -d '{"projectId":"p","image":"team/tools:v1"}' "$VERCEL_SANDBOX_BASE_URL/v2/sandboxes"`
	stdout, stderr, code := outcome(t, "-mode", "folder", "-image", "team/tools:v1", "-image", "team/more", "sh", "-c", create)
	assert.Zero(t, code, stderr)
	assert.Contains(t, stdout, `"image":"team/tools@sha256:`)
	stdout, _, _ = outcome(t, "-mode", "folder", "sh", "-c", create)
	assert.Contains(t, stdout, "Image not found.")
	_, stderr, code = outcome(t, "-image", "Team/tools", "true")
	assert.Equal(t, 1, code)
	assert.Contains(t, stderr, "Options.Images: \"Team/tools\"")
}

func TestVerbose(t *testing.T) {
	t.Parallel()
	needs.Programs(t, "curl")
	_, stderr, code := outcome(t, "-v", "-mode", "folder", "sh", "-c",
		`curl -s -H "Authorization: Bearer $VERCEL_TOKEN" "$VERCEL_SANDBOX_BASE_URL/v2/sandboxes?project=p"`)
	assert.Zero(t, code, stderr)
	assert.Regexp(t, `200 GET /v2/sandboxes \(list sandboxes, [^)]+\)\n$`, stderr)
}

// serving starts a program without a command and returns what it prints.
func serving(t *testing.T, args ...string) (*exec.Cmd, map[string]string) {
	cmd := program(t, args...)
	temp := t.TempDir()
	cmd.Env = append(cmd.Env, "TMPDIR="+temp, "PYTHONPATH=") // otherwise the emulator's value would come before it
	t.Cleanup(func() {                                       // when the program has ended
		left, err := os.ReadDir(temp)
		assert.NoError(t, err)
		assert.Empty(t, left)
	})
	return served(t, cmd)
}

func served(t *testing.T, cmd *exec.Cmd) (*exec.Cmd, map[string]string) {
	cmd.Stderr = os.Stderr
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // the program then removes its files
		_ = cmd.Wait()
	})
	env := make(map[string]string)
	lines := bufio.NewScanner(stdout)
	said := ""
	for lines.Scan() && !strings.Contains(lines.Text(), "Interrupt to stop") {
		said += lines.Text() + "\n"
		if kv, ok := strings.CutPrefix(lines.Text(), "export "); ok {
			k, v, _ := strings.Cut(kv, "=")
			env[k] = strings.Trim(v, "'")
		}
	}
	require.NoError(t, lines.Err())
	require.Len(t, env, 13)
	if slices.Contains(cmd.Args, "folder") {
		assert.Contains(t, said, "may use all of this machine's memory and processes")
		assert.Contains(t, said, "Not as on the platform here: commands are ordinary processes")
	}
	go func() { _, _ = io.Copy(io.Discard, stdout) }()
	return cmd, env
}

// connect returns a client of the server that serving has started.
func connect(t *testing.T, env map[string]string) *sandbox.Client {
	transport := new(http.Transport)
	t.Cleanup(transport.CloseIdleConnections)
	client, err := sandbox.NewClient(&sandbox.ClientOptions{
		BaseURL:    env["VERCEL_SANDBOX_BASE_URL"],
		HTTPClient: &http.Client{Transport: transport},
		Credentials: auth.Static(auth.Credentials{
			Token: env["VERCEL_TOKEN"], TeamID: env["VERCEL_TEAM_ID"], ProjectID: env["VERCEL_PROJECT_ID"],
		}),
	})
	require.NoError(t, err)
	return client
}

// TestFewFiles: if the emulator may not open enough files for a new sandbox, it refuses
// the sandbox with a status that says so. Existing sandboxes continue.
func TestFewFiles(t *testing.T) {
	t.Parallel()
	needs.Programs(t, "sh")
	limit := 300
	if !needs.Slow() {
		limit = 70 // enough for a few sandboxes
	}
	for _, mode := range []string{"", "-mode folder"} { // "" is the best mode of this machine
		t.Run(mode, func(t *testing.T) {
			cmd := program(t)
			cmd.Args = []string{"sh", "-c", fmt.Sprintf(`ulimit -n %d && exec "$0" %s`, limit, mode), os.Args[0]}
			cmd.Path = "/bin/sh"
			_, env := served(t, cmd)
			c := connect(t, env)
			var made []*sandbox.Sandbox
			for {
				sb, err := c.Create(t.Context(), nil)
				if err == nil {
					made = append(made, sb)
					require.Less(t, len(made), limit, "the emulator refused no sandbox")
					_, err = sb.StartCommand(t.Context(), "sleep", []string{"1000"}, nil) // in folder mode, only a running command keeps files open
					require.NoError(t, err)
					continue
				}
				api, ok := errors.AsType[*sandbox.APIError](err)
				require.True(t, ok, "%v", err)
				assert.Equal(t, http.StatusServiceUnavailable, api.Status)
				assert.Contains(t, api.Message, fmt.Sprintf("of the %d files that the emulator may open (ulimit -n) are in use", limit))
				break
			}
			require.NotEmpty(t, made)
			for _, sb := range made {
				done, err := sb.RunCommand(t.Context(), "true", nil, nil)
				require.NoError(t, err)
				assert.Zero(t, done.ExitCode)
				require.NoError(t, sb.Delete(t.Context(), nil))
			}
			_, err := c.Create(t.Context(), nil)
			require.NoError(t, err, "enough files can be opened again")
		})
	}
}

func TestServesUntilInterrupted(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "state")
	args := []string{"-mode", "folder", "-state", dir}
	cmd, env := serving(t, args...)
	hook, err := url.Parse(strings.TrimPrefix(env["NODE_OPTIONS"], "--import="))
	require.NoError(t, err)
	assert.FileExists(t, hook.Path)
	assert.FileExists(t, filepath.Join(env["PYTHONPATH"], "sitecustomize.py"))
	assert.Equal(t, 2, strings.Count(env["VERCEL_OIDC_TOKEN"], "."))
	sb, err := connect(t, env).Create(t.Context(), &sandbox.CreateOptions{Name: "kept"})
	require.NoError(t, err)
	_, err = sb.RunCommand(t.Context(), "sh", []string{"-c", "echo kept > file"}, nil)
	require.NoError(t, err)
	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	require.NoError(t, cmd.Wait())
	assert.NoFileExists(t, hook.Path)

	cmd, env = serving(t, args...)
	sb, err = connect(t, env).Get(t.Context(), "kept", nil)
	require.NoError(t, err)
	done, err := sb.RunCommand(t.Context(), "cat", []string{"file"}, nil)
	require.NoError(t, err)
	text, err := done.Stdout(t.Context())
	require.NoError(t, err)
	assert.Equal(t, "kept\n", text)
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	require.NoError(t, cmd.Wait())
}

func TestForwardsSignals(t *testing.T) {
	t.Parallel()
	cmd := program(t, "sh", "-c", "trap 'exit 9' TERM; echo up; while :; do sleep 0.1; done")
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	line, err := bufio.NewReader(stdout).ReadString('\n')
	require.NoError(t, err)
	assert.Equal(t, "up\n", line)
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	require.Error(t, cmd.Wait())
	assert.Equal(t, 9, cmd.ProcessState.ExitCode())
}

// TestControlFlag: a program in any language can use the control API, which has its own
// token.
func TestControlFlag(t *testing.T) {
	t.Parallel()
	needs.Programs(t, "curl")
	stdout, stderr, code := outcome(t, "-mode", "folder", "-control", "sh", "-c",
		`test "$SANDBOX_CONTROL_TOKEN" != "$VERCEL_TOKEN" && curl -sS -H "Authorization: Bearer $SANDBOX_CONTROL_TOKEN" "$SANDBOX_CONTROL_URL/requests"`)
	require.Zero(t, code, stderr)
	assert.JSONEq(t, `{"requests":[]}`, stdout)
	stdout, stderr, code = outcome(t, "-mode", "folder", "sh", "-c", `echo "$SANDBOX_CONTROL_URL|$SANDBOX_CONTROL_TOKEN"`)
	require.Zero(t, code, stderr)
	assert.Equal(t, "|\n", stdout)
	for _, args := range [][]string{{"-name", "x"}, {"-name", "a=b:1", "-name", "a=c:1"}} {
		_, _, code = outcome(t, append(args, "true")...)
		assert.Equal(t, exitUsage, code, "%v", args)
	}
}

// TestPoliciesAreEnforcedOrRefused: if policies can't be enforced, a program that relies
// on one fails with the reason, unless an option allows it.
func TestPoliciesAreEnforcedOrRefused(t *testing.T) {
	t.Parallel()
	needs.Programs(t, "curl")
	const create = `curl -sS -o /dev/stderr -w '%{http_code}' -H "Authorization: Bearer $VERCEL_TOKEN" -H 'Content-Type: application/json' ` +
		`"$VERCEL_SANDBOX_BASE_URL/v3/sandboxes" -d '{"projectId":"prj","networkPolicy":{"mode":"deny-all"}}'`
	stdout, stderr, code := outcome(t, "-mode", "folder", "sh", "-c", create)
	require.Zero(t, code, stderr)
	assert.Equal(t, "400", stdout, stderr)
	stdout, stderr, code = outcome(t, "-mode", "folder", "-unenforced-policies", "sh", "-c", create)
	require.Zero(t, code, stderr)
	assert.Equal(t, "200", stdout, stderr)
}

// TestDoctor: each missing part is listed with the command that adds it.
func TestDoctor(t *testing.T) {
	t.Parallel()
	var stdout, stderr bytes.Buffer
	require.Zero(t, run([]string{"-doctor", "-mode", "folder"}, &stdout, &stderr), "%s", &stderr)
	assert.Contains(t, stdout.String(), "folder mode\n")
	assert.Regexp(t, `(?m)^network policies +no$`, stdout.String())
	assert.Contains(t, stdout.String(), "(folder mode was requested): request no mode\n")
}
