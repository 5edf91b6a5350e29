package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/sandboxtest"
)

func TestMirror(t *testing.T) {
	srv := sandboxtest.New(t, nil)
	c := srv.Credentials()
	t.Setenv("VERCEL_SANDBOX_BASE_URL", srv.URL)
	t.Setenv("VERCEL_TOKEN", c.Token)
	t.Setenv("VERCEL_TEAM_ID", c.TeamID)
	t.Setenv("VERCEL_PROJECT_ID", c.ProjectID)
	out := filepath.Join(t.TempDir(), "out")
	require.NoError(t, run(t.Context(), ".", out, ""))
	sums, err := os.ReadFile(filepath.Join(out, "sums.txt"))
	require.NoError(t, err)
	assert.Contains(t, string(sums), "./main_test.go")
}
