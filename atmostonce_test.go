package sandbox_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/sandboxtest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestAtMostOnce runs commands that append a line each to a file, while the API
// acts and then answers 502, or drops the connection after acting, three times
// in ten: no line stands twice, and the lines that are missing are those whose
// commands failed.
func TestAtMostOnce(t *testing.T) {
	t.Parallel()
	total := 1000
	if testing.Short() {
		total = 100
	}
	srv, sb := start(t, nil)
	for _, f := range []sandboxtest.Fault{{ActThenStatus: 502, Probability: 0.15}, {DropAfter: true, Probability: 0.18}} {
		f.Operation = sandboxtest.RunCommand
		defer srv.Inject(f)()
	}
	var (
		group sync.WaitGroup
		mu    sync.Mutex
		known = map[string]bool{} // line: whether its command is known to have run
	)
	for worker := range 8 {
		group.Go(func() {
			for i := worker; i < total; i += 8 {
				line := fmt.Sprintf("line-%04d", i)
				_, err := sb.RunCommand(t.Context(), "sh", []string{"-c", "echo $0 >> lines", line}, nil)
				mu.Lock()
				known[line] = err == nil
				mu.Unlock()
				if err != nil && !errors.Is(err, sandbox.ErrOutcomeUnknown) {
					t.Errorf("%s: %v", line, err)
				}
			}
		})
	}
	group.Wait()
	counts := lines(t, sb)
	unknown := 0
	for line, ran := range known {
		assert.LessOrEqual(t, counts[line], 1, "%s stands more than once", line)
		if ran {
			assert.Equal(t, 1, counts[line], "%s was reported as run", line)
		} else {
			unknown++
		}
	}
	assert.Greater(t, unknown, total/10, "the faults struck")
	t.Logf("this SDK: %d commands, %d with an unknown outcome, %d ran twice", total, unknown, twice(counts))

	t.Run("official SDK", func(t *testing.T) { officialAtMostOnce(t, srv, total) })
}

// officialAtMostOnce runs the official SDK through the same faults. Its count is
// for comparison.
func officialAtMostOnce(t *testing.T, srv *sandboxtest.Server, total int) {
	modules := jsModules(t)
	client := clientOf(t, srv, sandbox.ClientOptions{})
	sb, err := client.Create(t.Context(), &sandbox.CreateOptions{Name: "official"})
	require.NoError(t, err)
	creds := srv.Credentials()
	cmd := exec.Command("node", "testdata/atmostonce/run.mjs", srv.URL, sb.Name(), "token", creds.TeamID, creds.ProjectID, fmt.Sprint(total))
	cmd.Env = append(os.Environ(), "NODE_PATH="+modules)
	out, err := cmd.Output()
	require.NoError(t, err)
	t.Logf("@vercel/sandbox: %d commands, it says %s, %d ran twice", total, bytes.TrimSpace(out), twice(lines(t, sb)))
}

func twice(counts map[string]int) int {
	n := 0
	for _, c := range counts {
		if c > 1 {
			n++
		}
	}
	return n
}

// lines counts the lines that a sandbox's commands have written.
func lines(t *testing.T, sb *sandbox.Sandbox) map[string]int {
	t.Helper()
	require.NoError(t, waitAll(t.Context(), sb))
	counts := map[string]int{}
	for line := range strings.Lines(read(t, sb, "lines")) {
		counts[strings.TrimSpace(line)]++
	}
	return counts
}

// jsModules returns the folder with the official SDK, which .ci/run installs and
// names in SANDBOX_JS_MODULES. Without it the comparison is left out, but not
// in CI.
func jsModules(t *testing.T) string {
	t.Helper()
	dir := os.Getenv("SANDBOX_JS_MODULES")
	if dir == "" {
		require.Empty(t, os.Getenv("CI"), "SANDBOX_JS_MODULES is needed in CI")
		t.Skip("the comparison with the official SDK needs SANDBOX_JS_MODULES, a node_modules folder with @vercel/sandbox")
	}
	return dir
}

// waitAll waits for every command of the session.
func waitAll(ctx context.Context, sb *sandbox.Sandbox) error {
	cmds, err := sb.ListCommands(ctx)
	if err != nil {
		return err
	}
	for _, cmd := range cmds {
		if _, exited := cmd.ExitCode(); exited {
			continue
		}
		if _, err := cmd.Wait(ctx); err != nil {
			return err
		}
	}
	return nil
}

// read returns a file's content, by a command that is repeated until it gets
// through the faults.
func read(t *testing.T, sb *sandbox.Sandbox, path string) string {
	t.Helper()
	for {
		done, err := sb.RunCommand(t.Context(), "cat", []string{path}, nil)
		if errors.Is(err, sandbox.ErrOutcomeUnknown) {
			continue
		}
		require.NoError(t, err)
		out, err := done.Stdout(t.Context())
		require.NoError(t, err)
		return out
	}
}
