package sandbox_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// processesWith returns the host's IDs of processes that have a variable.
func processesWith(t *testing.T, variable string) []int {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/environ")
	require.NoError(t, err)
	var pids []int
	for _, file := range files {
		env, err := os.ReadFile(file)
		if err == nil && bytes.Contains(append(env, 0), []byte(variable+"\x00")) {
			pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
			require.NoError(t, err)
			pids = append(pids, pid)
		}
	}
	return pids
}
