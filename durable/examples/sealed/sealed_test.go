package sealed

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/durable"
	"github.com/go-vercel/sandbox/durable/durabletest"
)

// TestStore: it keeps objects as any store does, and shows nothing of them. One that was
// changed, cut off, or put in another's place can't be read.
func TestStore(t *testing.T) {
	key := make([]byte, 32)
	_, _ = rand.Read(key)
	block, err := aes.NewCipher(key)
	require.NoError(t, err)
	aead, err := cipher.NewGCMWithRandomNonce(block)
	require.NoError(t, err)
	dir := t.TempDir()
	s := Store{durable.Dir(dir), aead}
	durabletest.TestStore(t, s)

	for _, key := range []string{"a", "b"} {
		w, err := s.Create(t.Context(), key)
		require.NoError(t, err)
		for _, piece := range []string{"secret ", "text of ", key} {
			_, err = io.WriteString(w, piece)
			require.NoError(t, err)
		}
		require.NoError(t, w.Commit())
		require.NoError(t, w.Close())
	}
	sealed := func(key string) []byte {
		data, err := os.ReadFile(filepath.Join(dir, key))
		require.NoError(t, err)
		return data
	}
	a, b := sealed("a"), sealed("b")
	assert.NotContains(t, string(a), "secret")
	lines := bytes.SplitAfter(a, []byte("\n"))
	changed := bytes.Clone(a)
	changed[5] ^= 1
	for name, data := range map[string][]byte{
		"whole": a, "cut off": bytes.Join(lines[:3], nil), "without a piece": bytes.Join(append(lines[:1:1], lines[2:]...), nil),
		"of another": b, "changed": changed, "empty": {},
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "a"), data, 0o600))
		r, err := s.Open(t.Context(), "a")
		require.NoError(t, err)
		_, err = io.ReadAll(r)
		assert.Equal(t, name == "whole", err == nil, "%s: %v", name, err)
		require.NoError(t, r.Close())
	}
}
