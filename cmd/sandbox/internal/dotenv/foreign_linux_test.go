package dotenv

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/internal/oidc"
	"github.com/go-vercel/sandbox/internal/test/needs"
)

// TestLoadOfOthers: a .env file of another user in a shared folder is ignored, and so is
// a link of theirs.
func TestLoadOfOthers(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		needs.Other(t, "only root can give a file to another user")
	}
	dir := t.TempDir()
	file, link, mine := filepath.Join(dir, ".env"), filepath.Join(dir, ".env.local"), filepath.Join(dir, "mine")
	require.NoError(t, os.WriteFile(file, []byte("A=theirs"), 0o644))
	require.NoError(t, os.WriteFile(mine, []byte("B=mine"), 0o644))
	require.NoError(t, os.Symlink(mine, link))
	require.NoError(t, os.Lchown(file, 65534, 65534))
	require.NoError(t, os.Lchown(link, 65534, 65534))
	vars, foreign := Load(dir, "")
	assert.Empty(t, vars)
	require.Len(t, foreign, 2)
	assert.ErrorIs(t, foreign[0], oidc.ErrForeign)
	assert.ErrorContains(t, foreign[0], file)
	require.NoError(t, os.Lchown(file, 0, 0))
	vars, _ = Load(dir, "")
	assert.Equal(t, map[string]string{"A": "theirs"}, vars)
}
