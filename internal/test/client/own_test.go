package client_test

import (
	"io"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/internal/own"
	"github.com/go-vercel/sandbox/internal/rawshell"
	"github.com/go-vercel/sandbox/internal/test/testkit"
)

// plainEnv is an env without -S, like BusyBox's.
const plainEnv = `#!/bin/sh
[ "$2" != -S ] || { echo 'env: unrecognized option: S' >&2; echo 'Usage: env [-iu] [-] [name=value]... [PROG ARGS]' >&2; exit 1; }
exec /usr/bin/env "$@"
`

// TestOwnRun: a helper program does not get the sandbox's environment, and Run returns its
// exact output and exit code, even if env has no -S.
func TestOwnRun(t *testing.T) {
	t.Parallel()
	sb := shareIsolated(t, &sandbox.CreateOptions{Env: sandbox.Env{"PATH": "/vercel/bin:/usr/local/bin:/usr/bin:/bin", "HOSTILE": "1", "BASH_FUNC_echo%%": "() { :; }"}})
	testkit.NeedBox(t, sb) // the test replaces env in /vercel/bin
	ctx := t.Context()
	long := strings.Repeat("error\n", 5000)
	for _, form := range []string{"splits", "plain"} {
		if form == "plain" {
			require.NoError(t, sb.FS().WriteFile(ctx, "/vercel/bin/env", []byte(plainEnv), 0o755))
		}
		var stdout, stderr strings.Builder
		done, err := own.Run(ctx, sb, &sandbox.CommandOptions{Stdout: &stdout, Stderr: &stderr, Cwd: "/tmp"}, "bash", "-c", `echo "$HOSTILE|$1|$(pwd)"; echo no >&2; exit 3`, "bash", "a b")
		require.NoError(t, err, form)
		assert.Equal(t, 3, done.ExitCode, form)
		assert.Equal(t, "|a b|/tmp\n", stdout.String(), form)
		assert.Equal(t, "no\n", stderr.String(), form)

		stderr.Reset()
		done, err = own.Run(ctx, sb, &sandbox.CommandOptions{Stderr: &stderr}, "sh", "-c", "yes error | head -n 5000 >&2")
		require.NoError(t, err, form)
		assert.Zero(t, done.ExitCode, form)
		assert.Equal(t, long, stderr.String(), form)

		_, err = own.Run(ctx, sb, nil, "no-such-program")
		require.ErrorIs(t, err, exec.ErrNotFound, form)

		if _, err := exec.LookPath("stty"); err == nil {
			s, err := rawshell.OpenOwn(ctx, sb, "bash", rawshell.Raw+rawshell.Greet+`echo "$HOSTILE|$1"`, "got")
			require.NoError(t, err, form)
			line := make([]byte, 5)
			_, err = io.ReadFull(s, line)
			require.NoError(t, err)
			assert.Equal(t, "|got\n", string(line), form)
			require.NoError(t, s.Close())
		}
	}
}
