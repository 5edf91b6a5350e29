package settings_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/cmd/sandbox/internal/settings"
)

// TestNullFile changes a file that contains null.
func TestNullFile(t *testing.T) {
	t.Parallel()
	dirs := settings.Dirs{Config: t.TempDir(), State: t.TempDir()}
	require.NoError(t, os.WriteFile(filepath.Join(dirs.Config, "telemetry.json"), []byte("null"), 0o600))
	require.NoError(t, dirs.SetTelemetry(true))
}
