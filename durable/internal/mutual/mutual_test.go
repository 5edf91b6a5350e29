package mutual

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestKeyOf: a file keeps its key, so that clients work after a restart of the server. A
// file without a whole key gets a new one, which only its owner can read.
func TestKeyOf(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tls.pem")
	key, err := KeyOf(file)
	require.NoError(t, err)
	again, err := KeyOf(file)
	require.NoError(t, err)
	assert.Equal(t, key, again)
	require.NoError(t, os.WriteFile(file, key[:len(key)/2], 0o600))
	other, err := KeyOf(file)
	require.NoError(t, err)
	assert.NotEqual(t, key, other)
	info, err := os.Stat(file)
	require.NoError(t, err)
	assert.Zero(t, info.Mode().Perm()&0o077)
	_, err = Client(other)
	require.NoError(t, err)
}
