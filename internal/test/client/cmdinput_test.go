package client_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/internal/test/needs"
	"github.com/go-vercel/sandbox/internal/test/testkit"
)

// stdinKinds returns readers of the types and sizes that the client treats differently: it
// stores some in a file, and delivers others while the command runs.
func stdinKinds(t *testing.T) map[string]func() io.Reader {
	few, many := "x\n", strings.Repeat("0123456789abcde\n", 40_000)
	file := func(text string) func() io.Reader {
		name := filepath.Join(t.TempDir(), "input")
		require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
		return func() io.Reader {
			f, err := os.Open(name)
			require.NoError(t, err)
			t.Cleanup(func() { f.Close() })
			return f
		}
	}
	kinds := map[string]func() io.Reader{
		"nil":                  func() io.Reader { return nil },
		"strings.Reader":       func() io.Reader { return strings.NewReader(few) },
		"large strings.Reader": func() io.Reader { return strings.NewReader(many) },
		"bytes.Buffer":         func() io.Reader { return bytes.NewBufferString(few) },
		"large bytes.Buffer":   func() io.Reader { return bytes.NewBufferString(many) },
		"file":                 file(few),
		"large file":           file(many),
		"reader":               func() io.Reader { return struct{ io.Reader }{strings.NewReader(few)} },
		"large reader":         func() io.Reader { return struct{ io.Reader }{strings.NewReader(many)} },
	}
	if !needs.Slow() {
		for _, name := range []string{"strings.Reader", "large bytes.Buffer", "large file", "large reader"} {
			delete(kinds, name)
		}
	}
	return kinds
}

// oddEnv are variables that shells drop, replace or use themselves.
var oddEnv = []string{
	"a.b=1", "npm_config_//registry/:_authToken=x", "A-B=2", "PLAIN=3", "1X=4", "IFS=,", "PS1=x", "OPTIND=5", "PPID=7", "LINENO=9", "PATH_=1",
	"quotes='\"$(id)`id`\\ ; x=y", "lines=a\n\nb\n", "EMPTY=", "env=e", "old=o", "p=q",
}

// For each kind of Stdin, a program gets the same environment and the same input, and a failed
// start returns the same kind of error as with os/exec. By default, each kind tries only one
// of the programs that can't be started.
func TestCmdStdinKinds(t *testing.T) {
	needs.GNU(t)
	if _, err := os.Stat("/proc/self/environ"); err != nil {
		needs.Other(t, "the programs are those of Linux")
	}
	t.Parallel()
	sb := stdinSandbox(t)
	kinds := stdinKinds(t)
	for i, name := range slices.Sorted(maps.Keys(kinds)) {
		stdin := kinds[name]
		t.Run(name, func(t *testing.T) {
			var want []byte
			if in := stdin(); in != nil {
				var err error
				want, err = io.ReadAll(in)
				require.NoError(t, err)
			}
			remote := sb.CommandContext(t.Context(), "sh", "-c", "tr '\\0' '\\1' </proc/self/environ; sha256sum")
			remote.Env, remote.Stdin = oddEnv, stdin()
			got, err := remote.CombinedOutput()
			require.NoError(t, err)
			assert.Equal(t, fmt.Sprintf("%x  -\n", sha256.Sum256(want)), oddVariables(t, string(got)))
			assert.Contains(t, string(got), "BOX.VAR=1\x01", "the sandbox's variables are kept, too")
			if b, ok := remote.Stdin.(*bytes.Buffer); ok {
				assert.Zero(t, b.Len(), "bytes that remain in the buffer")
			}

			programs := []string{"no-such-program", "cd", "/no/such/program", "/etc/passwd", "/etc"}
			if !needs.Slow() {
				programs = programs[i%5:][:1]
			}
			for _, program := range programs {
				var stderr bytes.Buffer
				local, remote := exec.CommandContext(t.Context(), program), sb.CommandContext(t.Context(), program)
				local.Stdin, remote.Stdin, remote.Stderr = stdin(), stdin(), &stderr
				want, got := local.Start(), remote.Start()
				if !assert.Error(t, got, program) {
					t.Log(remote.Wait(), stderr.String())
					continue
				}
				assert.Equal(t, errors.Is(want, fs.ErrNotExist), errors.Is(got, fs.ErrNotExist), "%s: %v", program, got)
				assert.Equal(t, errors.Is(want, fs.ErrPermission), errors.Is(got, fs.ErrPermission), "%s: %v", program, got)
				if errors.Is(want, exec.ErrNotFound) {
					assert.ErrorIs(t, got, exec.ErrNotFound, program)
				}
			}
			remote = sb.CommandContext(t.Context(), "true")
			remote.Dir, remote.Stdin = "/no/such/dir", stdin()
			assert.ErrorIs(t, remote.Run(), fs.ErrNotExist)
		})
	}
	assert.NotContains(t, testkit.Output(t, sb, "ls", "-A", "/tmp"), "stdin")
}

func stdinSandbox(t *testing.T) *sandbox.Sandbox {
	t.Helper()
	return shareIsolated(t, &sandbox.CreateOptions{Env: sandbox.Env{"BOX.VAR": "1"}})
}

// oddVariables checks that an output begins with an environment that contains oddEnv, and
// returns the rest of the output.
func oddVariables(t *testing.T, out string) string {
	env, sum := out[:strings.LastIndex(out, "\x01")], out[strings.LastIndex(out, "\x01")+1:]
	vars := strings.Split(env, "\x01")
	for _, kv := range oddEnv {
		assert.True(t, slices.Contains(vars, kv), "%q of %q", kv, vars)
	}
	return sum
}

// With each kind of Stdin, a command also gets the sandbox's variables, and a user's
// command gets its own. A program whose name contains "=" is started, although env takes
// such an argument for a variable. By default, only one kind is tried.
func TestCmdStdinKeepsTheEnvironment(t *testing.T) {
	needs.GNU(t)
	if _, err := os.Stat("/proc/self/environ"); err != nil {
		needs.Other(t, "the programs are those of Linux")
	}
	t.Parallel()
	sb := stdinSandbox(t)
	require.NoError(t, sb.FS().WriteFile(t.Context(), "a=b", []byte("#!/bin/sh\ntr '\\0' '\\1' </proc/self/environ; wc -c"), 0o755))
	kinds := stdinKinds(t)
	for name, stdin := range kinds {
		programs := []string{"./a=b", "sh"}
		if !needs.Slow() {
			// TestCmdStdinKinds has sh with each kind. The program's name does not depend on it.
			if programs = programs[:1]; name != "file" {
				continue
			}
		}
		for _, program := range programs {
			c := sb.CommandContext(t.Context(), program)
			if program == "sh" {
				c.Args = append(c.Args, "-c", `tr '\0' '\1' </proc/$$/environ; true`)
			}
			c.Stdin = stdin()
			out, err := c.CombinedOutput()
			require.NoError(t, err, "%s %s", name, program)
			assert.Contains(t, string(out), "BOX.VAR=1\x01", "%s %s", name, program)
		}
	}
	testkit.NeedUsers(t, sb)
	alice, err := sb.CreateUser(t.Context(), "alice")
	require.NoError(t, err)
	for name, stdin := range kinds {
		if !needs.Slow() && name != "file" {
			continue
		}
		c := alice.CommandContext(t.Context(), "sh", "-c", "tr '\\0' '\\1' </proc/self/environ; id -un")
		c.Env, c.Stdin = oddEnv, stdin()
		out, err := c.CombinedOutput()
		require.NoError(t, err, name)
		assert.Equal(t, "alice\n", oddVariables(t, string(out)), name)
		if _, live := stdin().(struct{ io.Reader }); stdin() != nil && !live { // a live input is a pipe that belongs to the service's user
			c = alice.CommandContext(t.Context(), "wc", "-c", "/dev/stdin")
			c.Stdin = stdin()
			out, err = c.CombinedOutput()
			require.NoError(t, err, "%s: %s", name, out)
			assert.NotEqual(t, "0 /dev/stdin\n", string(out), name)
		}
		c = alice.CommandContext(t.Context(), "no-such-program")
		c.Stdin = stdin()
		assert.EqualError(t, c.Run(), "exit status 127", name)
	}
}
