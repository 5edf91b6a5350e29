package untar_test

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/hex"
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/go-vercel/sandbox/internal/test/needs"
	"github.com/go-vercel/sandbox/internal/untar"
)

// TestOwners unpacks what only root can unpack.
func TestOwners(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		needs.Missing(t, "root")
	}
	// cap_net_raw, permitted and effective, like ping's.
	capability, err := hex.DecodeString("0100000200200000000000000000000000000000")
	require.NoError(t, err)
	pack := func(headers ...tar.Header) *bytes.Buffer {
		var buf bytes.Buffer
		tw := tar.NewWriter(&buf)
		for _, h := range headers {
			require.NoError(t, tw.WriteHeader(&h))
		}
		require.NoError(t, tw.Close())
		return &buf
	}
	extract := func(dir string, archive *bytes.Buffer) error {
		root, err := os.OpenRoot(dir)
		require.NoError(t, err)
		defer root.Close()
		return untar.Extract(context.Background(), archive, root, untar.Options{MaxEntries: 100, MaxBytes: 1 << 20, OutsideLinks: true, Owners: true})
	}
	dir := t.TempDir()
	require.NoError(t, extract(dir, pack(
		tar.Header{Name: "d", Typeflag: tar.TypeDir, Mode: 0o1777, Uid: 7, Gid: 8},
		tar.Header{Name: "d/su", Typeflag: tar.TypeReg, Mode: 0o4755, Uid: 0, Gid: 9},
		tar.Header{Name: "d/ping", Typeflag: tar.TypeReg, Mode: 0o775, Uid: 3, Gid: 4, PAXRecords: map[string]string{"SCHILY.xattr.security.capability": string(capability)}},
		tar.Header{Name: "d/link", Typeflag: tar.TypeSymlink, Linkname: "/nowhere", Uid: 5, Gid: 6},
		tar.Header{Name: "made/on/the/way", Typeflag: tar.TypeReg, Mode: 0o666},
	)))
	for name, want := range map[string][]uint32{
		"d": {0o1777, 7, 8}, "d/su": {0o4755, 0, 9}, "d/ping": {0o775, 3, 4}, "d/link": {0o777, 5, 6}, "made/on": {0o755, 0, 0}, "made/on/the/way": {0o666, 0, 0},
	} {
		info, err := os.Lstat(dir + "/" + name)
		require.NoError(t, err)
		st := info.Sys().(*syscall.Stat_t)
		assert.Equal(t, want, []uint32{st.Mode & 0o7777, st.Uid, st.Gid}, name)
	}
	found := make([]byte, 100)
	n, err := unix.Getxattr(dir+"/d/ping", "security.capability", found)
	require.NoError(t, err)
	assert.Equal(t, capability, found[:n])

	for _, uid := range []int64{-1, 1<<32 - 1} {
		assert.ErrorIs(t, extract(t.TempDir(), pack(tar.Header{Name: "x", Typeflag: tar.TypeReg, Uid: int(uid), Format: tar.FormatGNU})), untar.ErrUnsafe)
	}
}
