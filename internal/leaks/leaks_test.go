package leaks

import (
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// leaves names, in a process of this test, how long a goroutine lasts.
const leaves = "LEAKS_TEST_LEAVES"

func TestMain(m *testing.M) { Main(m) }

// TestMainWaits: a goroutine that ends later than goleak waits does not leak,
// one that never ends does.
func TestMainWaits(t *testing.T) {
	if last := os.Getenv(leaves); last != "" {
		d, err := time.ParseDuration(last)
		require.NoError(t, err)
		go time.Sleep(d)
		return
	}
	if testing.Short() {
		t.Skip("waits for a minute")
	}
	t.Parallel()
	for last, ok := range map[string]bool{"3s": true, "1h": false} {
		cmd := exec.Command(os.Args[0], "-test.run=^TestMainWaits$")
		cmd.Env = append(os.Environ(), leaves+"="+last)
		out, err := cmd.CombinedOutput()
		assert.Equal(t, ok, err == nil, "%s: %v\n%s", last, err, out)
		assert.Equal(t, !ok, strings.Contains(string(out), "found unexpected goroutines"), "%s", out)
	}
}
