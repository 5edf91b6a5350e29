package testmain

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/internal/test/needs"
)

// leaves names, in a process of this test, how long a goroutine lasts.
const leaves = "SANDBOX_TEST_LEAVES"

func TestMain(m *testing.M) { Main(m) }

// TestMainWaits: a goroutine that ends later than goleak waits does not leak,
// one that never ends does.
func TestMainWaits(t *testing.T) {
	if last := os.Getenv(leaves); last != "" {
		d, err := time.ParseDuration(last)
		require.NoError(t, err)
		go time.Sleep(d) //nolint:sleeping // is the goroutine that leaks
		return
	}
	needs.Long(t, "waits for a minute")
	t.Parallel()
	for last, ok := range map[string]bool{"3s": true, "1h": false} {
		cmd := exec.Command(os.Args[0], "-test.run=^TestMainWaits$")
		cmd.Env = append(os.Environ(), leaves+"="+last)
		out, err := cmd.CombinedOutput()
		assert.Equal(t, ok, err == nil, "%s: %v\n%s", last, err, out)
		assert.Equal(t, !ok, strings.Contains(string(out), "found unexpected goroutines"), "%s", out)
	}
}

// TestEnvironment: in a process of this test a user's settings are gone, and what
// the test sets for a process of its own is there.
func TestEnvironment(t *testing.T) {
	const inner = "SANDBOX_TEST_INNER"
	if os.Getenv(inner) != "" {
		for _, kv := range os.Environ() {
			fmt.Println("ENV", kv)
		}
		return
	}
	closed := filepath.Join(t.TempDir(), "closed")
	require.NoError(t, os.Mkdir(closed, 0))
	shims := filepath.Join(t.TempDir(), "shims")
	require.NoError(t, os.Mkdir(shims, 0o755))
	set := []string{"PATH=" + strings.Join([]string{shims, closed, os.Getenv("PATH")}, string(filepath.ListSeparator)), inner + "=1", "VERCEL_TOKEN=t", "http_proxy=http://127.0.0.1:1", "HTTPS_PROXY=x", "GIT_DIR=x", "BASH_ENV=x", "TAR_OPTIONS=-v",
		"SANDBOX_SCOPE=x", "FORCE_COLOR=1", "POSIXLY_CORRECT=", "LC_ALL=tr_TR.UTF-8", "GOFLAGS=-mod=mod", "NODE_OPTIONS=x", "PYTHONPATH=x"}
	for name, want := range map[string][]string{"": {"GOFLAGS", "PATH", cleanEnv, inner}, cleanEnv + "=1": nil} {
		cmd := exec.Command(os.Args[0], "-test.run=^TestEnvironment$")
		cmd.Env = append(slices.Clone(set), name)
		if name == "" {
			cmd.Env = set
		}
		out, err := cmd.Output()
		require.NoError(t, err, "%s", out)
		var names []string
		for line := range strings.Lines(string(out)) {
			if kv, ok := strings.CutPrefix(line, "ENV "); ok {
				key, value, _ := strings.Cut(kv, "=")
				names = append(names, key)
				if key == "GOFLAGS" && want != nil {
					assert.Equal(t, "-mod=mod -buildvcs=false\n", value)
				}
				if _, err := os.ReadDir(closed); key == "PATH" && want != nil && err != nil { // root may read it
					assert.NotContains(t, value, closed)
				}
				if key == "PATH" && want != nil {
					assert.Contains(t, value, shims)
					assert.False(t, strings.HasPrefix(value, shims), "%s", value)
				}
			}
		}
		slices.Sort(names)
		if want == nil {
			assert.Contains(t, names, "VERCEL_TOKEN")
		} else {
			assert.Equal(t, want, names)
		}
	}
}
