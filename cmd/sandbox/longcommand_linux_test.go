package main

import (
	"bufio"
	"bytes"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/sandboxtest"
)

// TestLongCommand: a session does not end while exec or run waits for a command, unless
// the user requested that.
func TestLongCommand(t *testing.T) {
	t.Parallel()
	const waits = "echo up >&2; until [ -e go ]; do sleep 0.1; done; echo done"
	for name, row := range map[string]struct {
		args    []string
		extends bool
	}{
		"exec":                {[]string{"exec", "c"}, true},
		"exec -i":             {[]string{"exec", "-i", "c"}, true},
		"run":                 {[]string{"run", "--name", "c"}, true},
		"exec, not to extend": {[]string{"exec", "--no-extend-timeout", "c"}, false},
		"run with a limit":    {[]string{"run", "--name", "c", "--timeout", "5s"}, false},
		"run, not to extend":  {[]string{"run", "--name", "c", "--no-extend-timeout"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newWorkspace(t, nil)
			sb, err := d.server.Client().Create(t.Context(), &sandbox.CreateOptions{Name: "c", Timeout: 9 * time.Second})
			require.NoError(t, err)
			cmd := d.command(t.Context(), append(row.args, "--no-echo", "--", "sh", "-c", waits)...)
			var stdout bytes.Buffer
			cmd.Stdout = &stdout
			stderr, err := cmd.StderrPipe()
			require.NoError(t, err)
			require.NoError(t, cmd.Start())
			for lines := bufio.NewScanner(stderr); nextLine(t, lines) != "up"; {
			}
			extended := func() bool {
				return slices.ContainsFunc(d.server.Requests(), func(r sandboxtest.Request) bool { return strings.HasSuffix(r.Path, "/extend-timeout") })
			}
			if row.extends {
				require.Eventually(t, extended, time.Minute, 20*time.Millisecond, "the timeout is not extended")
			}
			d.server.Advance(4 * time.Minute)
			if row.extends {
				require.NoError(t, sb.FS().WriteFile(t.Context(), "go", nil, 0o600))
			}
			_, _ = io.Copy(io.Discard, stderr)
			err = cmd.Wait()
			if !row.extends {
				assert.Error(t, err)
				assert.False(t, extended())
				return
			}
			assert.NoError(t, err)
			assert.Equal(t, "done\n", stdout.String())
		})
	}
}
