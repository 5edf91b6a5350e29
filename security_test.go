package sandbox_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/sandboxtest"
)

// sends makes a sandbox whose tar, gzip and base64 are programs of its own, which
// send an archive of its choice.
func sends(t *testing.T, names []string) *sandbox.Sandbox {
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
	require.NoError(t, sb.WriteFiles(t.Context(), []sandbox.File{
		{Path: "/vercel/sandbox/payload", Text: base64.StdEncoding.EncodeToString(archive.Bytes())},
	}, nil))
	_, err = sb.RunCommand(t.Context(), "bash", []string{"-c", `cd /usr/local/bin &&
		printf '#!/bin/sh\ntrue\n' > tar; printf '#!/bin/sh\ncat\n' > gzip; printf '#!/bin/sh\ncat /vercel/sandbox/payload\n' > base64
		chmod +x tar gzip base64`}, &sandbox.CommandOptions{Sudo: true})
	require.NoError(t, err)
	return sb
}

// TestDownloadDirOfABomb: a few hundred bytes cost neither minutes nor inodes.
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
			var names []string
			for i := range c.entries {
				names = append(names, fmt.Sprint(i, "/", strings.Repeat("d/", c.depth), "f"))
			}
			sb := sends(t, names)
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			dst := t.TempDir()
			err := sb.DownloadDir(ctx, "/vercel/sandbox", dst, &sandbox.DownloadDirOptions{MaxEntries: 1000})
			assert.ErrorIs(t, err, sandbox.ErrUnsafeArchive)
			assert.ErrorContains(t, err, c.want)
			made := -1
			require.NoError(t, filepath.WalkDir(dst, func(string, fs.DirEntry, error) error { made++; return nil }))
			assert.LessOrEqual(t, made, 1000)
		})
	}
}
