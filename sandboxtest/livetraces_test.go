package sandboxtest_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/internal/test/needs"
	"github.com/go-vercel/sandbox/sandboxtest"
)

// TestLiveTraces sends the requests of recorded exchanges of the hosted API to
// the emulator, and compares the responses: fields and their presence,
// statuses, codes, texts, headers. SANDBOX_LIVE_TRACES names the folder of the
// traces, with the script replay.py that compares; they are not part of this
// module.
func TestLiveTraces(t *testing.T) {
	t.Parallel()
	dir := os.Getenv("SANDBOX_LIVE_TRACES")
	if dir == "" {
		needs.Other(t, "needs recorded exchanges of the hosted API, in the folder that SANDBOX_LIVE_TRACES names")
	}
	needs.Programs(t, "python3")
	traces, err := filepath.Glob(filepath.Join(dir, "*.jsonl"))
	require.NoError(t, err)
	require.NotEmpty(t, traces, "there are no traces in %s", dir)
	for _, trace := range traces {
		t.Run(filepath.Base(trace), func(t *testing.T) {
			inModes(t, sandboxtest.Options{}, func(t *testing.T, srv *sandboxtest.Server, _ *raw) {
				cmd := exec.CommandContext(t.Context(), "python3", filepath.Join(dir, "replay.py"), srv.URL, trace)
				cmd.Env = append(os.Environ(), "SANDBOX_TOKEN="+srv.Credentials().Token)
				out, err := cmd.CombinedOutput()
				assert.NoError(t, err, "%s", out)
				assert.Contains(t, string(out), " exchanges, 0 differ")
			})
		})
	}
}
