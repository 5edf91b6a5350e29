package client_test

import (
	"bytes"
	"context"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/internal/test/needs"
	"github.com/go-vercel/sandbox/internal/test/testkit"
)

// TestWrappers: for Binary and Stdin, the client runs a command through a shell. The
// command's output and exit code are the same as without it, even if the environment
// makes shells or the loader print messages.
func TestWrappers(t *testing.T) {
	t.Parallel()
	needs.Programs(t, "bash")
	const script = `printf out; exit 3`
	type result struct {
		stdout, stderr string
		code           int
	}
	cmd := func(ctx context.Context, sb *sandbox.Sandbox, env []string, binary bool, stdin io.Reader) result {
		var out, errs bytes.Buffer
		c := sb.CommandContext(ctx, "/bin/sh", "-c", script)
		c.Env, c.Binary, c.Stdin, c.Stdout, c.Stderr = env, binary, stdin, &out, &errs
		err := c.Run()
		assert.ErrorAs(t, err, new(*sandbox.ExitError), "%v", env)
		return result{out.String(), errs.String(), c.ProcessState.ExitCode()}
	}
	envs := []sandbox.Env{
		{"LC_ALL": "xx_XX.UTF-8", "LD_PRELOAD": "/nonexistent.so"},
		{"LC_ALL": "xx_XX.UTF-8"},
		{"LD_PRELOAD": "/nonexistent.so"},
		{"LD_DEBUG": "libs"},
		{"HOME": "", "LANG": "xx_XX.UTF-8", "BASH_ENV": "/nonexistent", "ENV": "/nonexistent"},
	}
	if !needs.Slow() {
		envs = envs[:1] // makes both the shell and the loader print messages
	}
	for _, env := range envs {
		for where, create := range map[string]*sandbox.CreateOptions{"the command's": nil, "the sandbox's": {Env: env}} {
			if create == nil && !needs.Slow() {
				continue // the sandbox's environment has the same effect
			}
			srv, sb := start(t, create)
			var own sandbox.Env
			var list []string
			if create == nil {
				own = env
				for name, value := range env {
					list = append(list, name+"="+value)
				}
			}
			// Ignore the messages of LD_DEBUG, because they contain the process ID.
			same := func(want, got result, way string) {
				if env["LD_DEBUG"] != "" {
					want.stderr, got.stderr = "", ""
				}
				assert.Equal(t, want, got, "%v, %s, %s", env, where, way)
			}
			ctx := t.Context()
			want := cmd(ctx, sb, list, false, nil)
			assert.Equal(t, "out", want.stdout)
			assert.Equal(t, 3, want.code)
			same(want, cmd(ctx, sb, list, true, nil), "Binary")
			for _, binary := range []bool{false, true} {
				withInput := cmd(ctx, sb, list, binary, strings.NewReader("in"))
				// The shell that opens the input makes the loader and bash print their
				// messages a second time.
				withInput.stderr = strings.Join(slices.Compact(strings.SplitAfter(withInput.stderr, "\n")), "")
				same(want, withInput, "input")
			}

			done, err := sb.RunCommand(ctx, "/bin/sh", []string{"-c", script}, &sandbox.CommandOptions{Env: own, Binary: true})
			require.NoError(t, err)
			again, err := sb.GetCommand(ctx, done.Command.ID())
			require.NoError(t, err)
			for _, c := range []*sandbox.Command{done.Command, again} {
				out, err := c.Stdout(ctx)
				require.NoError(t, err)
				errs, err := c.Stderr(ctx)
				require.NoError(t, err)
				same(want, result{out, errs, done.ExitCode}, "RunCommand")
			}
			if srv.Enforces().Users && needs.Slow() { // TestBinary also runs commands of a user
				u, err := sb.CreateUser(ctx, "somebody")
				require.NoError(t, err)
				plain, err := u.RunCommand(ctx, "/bin/sh", []string{"-c", script}, &sandbox.CommandOptions{Env: own})
				require.NoError(t, err)
				exact, err := u.RunCommand(ctx, "/bin/sh", []string{"-c", script}, &sandbox.CommandOptions{Env: own, Binary: true})
				require.NoError(t, err)
				out, err := exact.Stdout(ctx)
				require.NoError(t, err)
				assert.Equal(t, "out", out)
				assert.Equal(t, plain.ExitCode, exact.ExitCode)
			}
			path, err := sb.LookPath(ctx, "sh")
			require.NoError(t, err)
			assert.True(t, strings.HasSuffix(path, "/sh"), path)
		}
	}
}

// TestNoWorkingDirectory: if the working directory does not exist, operations on absolute
// paths work. For relative paths, the error names the directory.
func TestNoWorkingDirectory(t *testing.T) {
	t.Parallel()
	needs.GNU(t)
	sb := shareIsolated(t, nil)
	ctx, f := t.Context(), sb.FS()
	cwd := sb.Cwd()
	testkit.NeedRoot(t, sb)
	done, err := sb.RunCommand(ctx, "rm", []string{"-r", cwd}, &sandbox.CommandOptions{Sudo: true})
	require.NoError(t, err)
	require.Zero(t, done.ExitCode)
	rows := []struct {
		name string
		do   func() error
	}{
		{"Stat", func() error { _, err := f.Stat(ctx, "/tmp"); return err }},
		{"ReadDir", func() error { _, err := f.ReadDir(ctx, "/tmp"); return err }},
		{"AppendFile", func() error { return f.AppendFile(ctx, "/tmp/no-working-directory", []byte("x")) }},
		{"Chmod", func() error { return f.Chmod(ctx, "/tmp/no-working-directory", 0o600) }},
		{"Remove", func() error { return f.Remove(ctx, "/tmp/no-working-directory") }},
		{"Create", func() error {
			w, err := f.Create(ctx, "/tmp/no-working-directory", nil)
			if err == nil {
				err = w.Close()
			}
			return err
		}},
		{"DownloadDir", func() error {
			if err := f.MkdirAll(ctx, "/tmp/no-working-directory.d", 0o755); err != nil {
				return err
			}
			return f.DownloadDir(ctx, "/tmp/no-working-directory.d", t.TempDir(), nil)
		}},
		{"RemoveAll", func() error { return f.RemoveAll(ctx, "/tmp/no-working-directory.d") }},
		{"LookPath", func() error { _, err := sb.LookPath(ctx, "sh"); return err }},
		{"a command", func() error {
			c := sb.CommandContext(ctx, "true")
			c.Dir, c.Stdin, c.Binary = "/", strings.NewReader("in"), true
			return c.Run()
		}},
	}
	if !needs.Slow() {
		rows = rows[:1] // the client starts all of these programs in the same way
	}
	for _, row := range rows {
		assert.NoError(t, row.do(), row.name)
	}
	_, err = f.Stat(ctx, "relative")
	assert.ErrorContains(t, err, cwd)
}
