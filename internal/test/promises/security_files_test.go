package promises_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/internal/test/needs"
	"github.com/go-vercel/sandbox/internal/test/testkit"
	"github.com/go-vercel/sandbox/sandboxtest"
)

// sandboxSending returns a sandbox in which other programs replace tar, gzip and base64, so
// that a download receives an archive with the given names.
func sandboxSending(t *testing.T, names []string) *sandbox.Sandbox {
	t.Helper()
	var archive bytes.Buffer
	zw := gzip.NewWriter(&archive)
	tw := tar.NewWriter(zw)
	for _, name := range names {
		require.NoError(t, tw.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644, Format: tar.FormatPAX}))
	}
	require.NoError(t, tw.Close())
	require.NoError(t, zw.Close())
	sb, err := sandboxtest.New(t, nil).Client().Create(t.Context(), nil)
	require.NoError(t, err)
	testkit.NeedRoot(t, sb)
	require.NoError(t, sb.WriteFiles(t.Context(), []sandbox.File{
		{Path: "/vercel/payload", Content: []byte(base64.StdEncoding.EncodeToString(archive.Bytes()))},
	}, nil))
	_, err = sb.RunCommand(t.Context(), "bash", []string{"-c", `cd /usr/local/bin &&
		printf '#!/bin/sh\ntrue\n' > tar; printf '#!/bin/sh\ncat\n' > gzip; printf '#!/bin/sh\ncat /vercel/payload\n' > base64
		chmod +x tar gzip base64`}, &sandbox.CommandOptions{Sudo: true})
	require.NoError(t, err)
	return sb
}

// TestDownloadDirOfABomb: DownloadDir stops unpacking a small archive with very many or
// very deep directories.
func TestDownloadDirOfABomb(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		depth, entries int
		want           string
	}{
		"deep": {2000, 1000, "2002 directories deep, more than 255"},
		"wide": {200, 50, "more than 1000 entries"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if name == "deep" {
				needs.Long(t, "its archive has two million directories; TestExtractDeep always unpacks a smaller one")
			}
			var names []string
			for i := range c.entries {
				names = append(names, fmt.Sprint(i, "/", strings.Repeat("d/", c.depth), "f"))
			}
			sb := sandboxSending(t, names)
			ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
			defer cancel()
			dst := t.TempDir()
			err := sb.FS().DownloadDir(ctx, "/vercel", dst, &sandbox.DownloadDirOptions{MaxEntries: 1000})
			assert.ErrorIs(t, err, sandbox.ErrUnsafeArchive)
			assert.ErrorContains(t, err, c.want)
			made := -1
			require.NoError(t, filepath.WalkDir(dst, func(string, fs.DirEntry, error) error { made++; return nil }))
			assert.LessOrEqual(t, made, 1000)
		})
	}
}

// TestUploadFollowsNoLinks: while an upload reads a tree, its files and folders are
// replaced by links. The upload does not follow the links that lead out of the tree.
func TestUploadFollowsNoLinks(t *testing.T) {
	t.Parallel()
	sb, err := testkit.LightServer(t).Client().Create(t.Context(), nil)
	require.NoError(t, err)
	base := t.TempDir()
	tree, outside := filepath.Join(base, "tree"), filepath.Join(base, "outside")
	const secret, mine = "outside-secret-of-the-user", "inside-of-the-tree-00000000"
	for name, content := range map[string]string{filepath.Join(outside, "f"): secret, filepath.Join(tree, "sub", "f"): mine} {
		require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o755))
		require.NoError(t, os.WriteFile(name, []byte(content), 0o600))
	}
	require.NoError(t, os.Symlink("../outside/f", filepath.Join(tree, "link")))
	require.NoError(t, os.Symlink("../outside", filepath.Join(tree, "folder")))
	stop := make(chan struct{})
	var swapping sync.WaitGroup
	swapping.Go(func() {
		in := func(name string) string { return filepath.Join(tree, name) }
		for {
			select {
			case <-stop:
				return
			default:
			}
			_ = os.Rename(in("sub"), in(".sub"))
			_ = os.Symlink("../outside", in("sub"))
			_ = os.Remove(in("sub"))
			_ = os.Rename(in(".sub"), in("sub"))
			_ = os.Rename(in("sub/f"), in("sub/.f"))
			_ = os.Symlink("../../outside/f", in("sub/f"))
			_ = os.Remove(in("sub/f"))
			_ = os.Rename(in("sub/.f"), in("sub/f"))
		}
	})
	sent, rounds := 0, 10
	if !needs.Slow() {
		rounds = 4
	}
	for i := range rounds {
		dst := fmt.Sprint("up", i)
		// An upload may fail, because files disappear while it runs.
		if sb.FS().UploadDir(t.Context(), tree, dst, &sandbox.UploadOptions{Exclude: []string{".f", ".sub"}}) == nil {
			sent++
		}
		done, err := sb.RunCommand(t.Context(), "sh", []string{"-c", "find " + dst + " -type f -exec cat {} + 2>/dev/null"}, nil)
		require.NoError(t, err)
		out, err := done.Stdout(t.Context())
		require.NoError(t, err)
		assert.NotContains(t, out, secret)
	}
	close(stop)
	swapping.Wait()
	require.NoError(t, sb.FS().UploadDir(t.Context(), tree, "last", nil))
	file, err := sb.FS().Open(t.Context(), "last/sub/f", nil)
	require.NoError(t, err)
	defer file.Close()
	data, err := io.ReadAll(file)
	require.NoError(t, err)
	assert.Equal(t, mine, string(data), "after %d successful uploads of %d", sent, rounds)
}

// TestDownloadFileMaxBytes: DownloadFile of an endless file fails instead of filling the disk.
func TestDownloadFileMaxBytes(t *testing.T) {
	t.Parallel()
	sb, err := testkit.LightServer(t).Client().Create(t.Context(), nil)
	require.NoError(t, err)
	require.NoError(t, sb.WriteFiles(t.Context(), []sandbox.File{{Path: "f", Content: []byte(strings.Repeat("x", 1000))}}, nil))
	dir := t.TempDir()
	dst := filepath.Join(dir, "f")
	err = sb.FS().DownloadFile(t.Context(), "f", dst, &sandbox.DownloadFileOptions{MaxBytes: 999})
	limit, ok := errors.AsType[*http.MaxBytesError](err)
	require.True(t, ok, "%v", err)
	assert.EqualValues(t, 999, limit.Limit)
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Empty(t, left)
	require.NoError(t, sb.FS().DownloadFile(t.Context(), "f", dst, &sandbox.DownloadFileOptions{MaxBytes: 1000}))
	assert.ErrorIs(t, sb.FS().DownloadFile(t.Context(), "f", dst, &sandbox.DownloadFileOptions{MaxBytes: -1}), sandbox.ErrInvalid)
	for field, o := range map[string]sandbox.DownloadDirOptions{"MaxEntries": {MaxEntries: -1}, "MaxBytes": {MaxBytes: -1}} {
		err := sb.FS().DownloadDir(t.Context(), ".", dst, &o)
		assert.ErrorIs(t, err, sandbox.ErrInvalid)
		assert.ErrorContains(t, err, field+": -1 is negative")
	}
}
