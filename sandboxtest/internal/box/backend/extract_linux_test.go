package backend

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestArchiveLimits: an archive with too many entries or bytes is refused.
func TestArchiveLimits(t *testing.T) {
	var archive bytes.Buffer
	zw := gzip.NewWriter(&archive)
	tw := tar.NewWriter(zw)
	for _, name := range []string{"one", "two", "three"} {
		require.NoError(t, tw.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o600, Size: 8}))
		_, err := tw.Write([]byte("contents"))
		require.NoError(t, err)
	}
	require.NoError(t, tw.Close())
	require.NoError(t, zw.Close())
	for _, max := range []limits{{entries: 2, bytes: 24}, {entries: 3, bytes: 23}} {
		err := extract(t.Context(), ThreadFS{}, bytes.NewReader(archive.Bytes()), t.TempDir(), max)
		require.ErrorIs(t, err, ErrBadArchive)
	}
	require.NoError(t, extract(t.Context(), ThreadFS{}, bytes.NewReader(archive.Bytes()), t.TempDir(), limits{entries: 3, bytes: 24}))
}
