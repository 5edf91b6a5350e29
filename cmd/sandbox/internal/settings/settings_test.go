package settings_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/cmd/sandbox/internal/settings"
)

// TestNullFiles changes files that say null.
func TestNullFiles(t *testing.T) {
	t.Parallel()
	dirs := settings.Dirs{Config: t.TempDir(), State: t.TempDir()}
	require.NoError(t, os.WriteFile(filepath.Join(dirs.State, "active.json"), []byte("null"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dirs.Config, "telemetry.json"), []byte("null"), 0o600))
	require.NoError(t, dirs.SetActive("/app", "web"))
	name, err := dirs.Active("/app/sub")
	require.NoError(t, err)
	assert.Equal(t, "web", name)
	require.NoError(t, dirs.SetTelemetry(true))
}
