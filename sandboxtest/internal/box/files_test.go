package box

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/internal/test/needs"
	"github.com/go-vercel/sandbox/sandboxtest/internal/box/backend"
	"github.com/go-vercel/sandbox/sandboxtest/internal/box/inside"
)

func TestExtract(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, h *Host) {
		b := newBox(t, h, backend.Config{})
		when := time.Unix(1234567890, 0)
		require.NoError(t, b.Extract(t.Context(), archive(t,
			tar.Header{Name: "closed/", Typeflag: tar.TypeDir, Mode: 0o555, ModTime: when},
			tar.Header{Name: "closed/inside", Mode: 0o400, ModTime: when},
			tar.Header{Name: "./on/the/way", Mode: 0o755, ModTime: when},
			tar.Header{Name: "link", Typeflag: tar.TypeSymlink, Linkname: "/vercel/sandbox/on/the/way"},
			tar.Header{Name: "hard", Typeflag: tar.TypeLink, Linkname: "on/the/way"},
			tar.Header{Name: "odd \n name é -x"},
		), ""))
		assert.Equal(t, "555 1234567890\n400 1234567890\n755 1234567890\n2\ndata of ./on/the/way",
			sh(t, b, "stat -c '%a %Y' closed closed/inside on/the/way; stat -c %h on/the/way; cat link"))
		assert.Equal(t, "data of ./on/the/way", read(t, b, "link"))
		assert.Equal(t, "data of odd \n name é -x", read(t, b, "odd \n name é -x"))
		if h.Mode() == Namespace {
			owner := backend.User + " " + backend.User
			assert.Equal(t, owner+"\n"+owner, sh(t, b, "stat -c '%U %G' on/the on/the/way"))
		}

		// Existing files are replaced, and links are not followed.
		sh(t, b, "echo precious > precious; ln -sf precious pointer; echo old > readonly; chmod 400 readonly; mkdir -p full/of")
		require.NoError(t, b.Extract(t.Context(), archive(t, tar.Header{Name: "pointer"}, tar.Header{Name: "readonly"}, tar.Header{Name: "full/", Typeflag: tar.TypeDir, Mode: 0o755}), backend.WorkDir))
		assert.Equal(t, "precious\n", read(t, b, "precious"))
		assert.Equal(t, "data of pointer", read(t, b, "pointer"))
		assert.Equal(t, "data of readonly", read(t, b, "readonly"))
		require.Error(t, b.Extract(t.Context(), archive(t, tar.Header{Name: "full"}), backend.WorkDir))
	})
}

func TestHostileArchives(t *testing.T) {
	t.Parallel()
	outside := t.TempDir()
	canary := filepath.Join(outside, "canary")
	require.NoError(t, os.WriteFile(canary, []byte("alive"), 0o666))
	require.NoError(t, os.Chmod(outside, 0o777))
	var compressed bytes.Buffer
	_, _ = io.Copy(&compressed, archive(t, tar.Header{Name: "file"}))
	cut := compressed.Bytes()[:compressed.Len()/2]
	random := bytes.Repeat([]byte{0x5a, 1, 2, 3}, 4096)
	var zipped bytes.Buffer
	zw := gzip.NewWriter(&zipped)
	_, _ = zw.Write(random)
	_ = zw.Close()

	eachMode(t, func(t *testing.T, h *Host) {
		b := newBox(t, h, backend.Config{})
		for name, hdr := range map[string]tar.Header{
			"dotdot":      {Name: "../../../../" + canary},
			"dotdot deep": {Name: "a/../../../../../" + canary},
			"hard link":   {Name: "hard", Typeflag: tar.TypeLink, Linkname: "../../.." + canary},
			"device":      {Name: "dev", Typeflag: tar.TypeBlock, Devmajor: 1, Devminor: 1},
			"character":   {Name: "dev", Typeflag: tar.TypeChar, Devmajor: 1, Devminor: 3},
			"fifo":        {Name: "fifo", Typeflag: tar.TypeFifo},
			"empty link":  {Name: "sym", Typeflag: tar.TypeSymlink, Linkname: ""},
			"long name":   {Name: strings.Repeat("n/", 4000) + "n"},
			"no name":     {Name: "."},
			"itself":      {Name: "self", Typeflag: tar.TypeLink, Linkname: "self"},
		} {
			err := b.Extract(t.Context(), archive(t, hdr), "/")
			require.ErrorIs(t, err, backend.ErrBadArchive, name)
		}
		for name, data := range map[string][]byte{"not gzip": random, "not tar": zipped.Bytes(), "cut short": cut, "empty": nil} {
			require.ErrorIs(t, b.Extract(t.Context(), bytes.NewReader(data), ""), backend.ErrBadArchive, name)
		}
		require.ErrorIs(t, b.Extract(t.Context(), &compressed, "a\x00b"), backend.ErrBadPath)

		// These stay inside or fail; nothing happens outside.
		for name, entries := range map[string][]tar.Header{
			"absolute":             {{Name: canary}},
			"through a link":       {{Name: "esc", Typeflag: tar.TypeSymlink, Linkname: outside}, {Name: "esc/canary"}},
			"through dots":         {{Name: "up", Typeflag: tar.TypeSymlink, Linkname: "../../../../../../../.." + outside}, {Name: "up/canary"}},
			"through two links":    {{Name: "l1", Typeflag: tar.TypeSymlink, Linkname: "l2"}, {Name: "l2", Typeflag: tar.TypeSymlink, Linkname: outside}, {Name: "l1/canary"}},
			"onto a link":          {{Name: "file", Typeflag: tar.TypeSymlink, Linkname: canary}, {Name: "file"}},
			"hard link to outside": {{Name: "hl", Typeflag: tar.TypeLink, Linkname: canary}, {Name: "hl"}},
			"directory mode":       {{Name: "d", Typeflag: tar.TypeSymlink, Linkname: outside}, {Name: "d/", Typeflag: tar.TypeDir, Mode: 0o700}},
			"loop":                 {{Name: "loop", Typeflag: tar.TypeSymlink, Linkname: "loop"}, {Name: "loop/file"}},
		} {
			_ = b.Extract(t.Context(), archive(t, entries...), backend.WorkDir)
			data, err := os.ReadFile(canary)
			require.NoError(t, err, name)
			assert.Equal(t, "alive", string(data), name)
			list, err := os.ReadDir(outside)
			require.NoError(t, err)
			assert.Len(t, list, 1, name)
			info, err := os.Stat(outside)
			require.NoError(t, err)
			assert.Equal(t, fs.FileMode(0o777), info.Mode().Perm(), name)
		}
		// Reading does not lead out either.
		sh(t, b, `ln -sf "$1" out; ln -sf ../../../../../../../../../.."$1" out2`, canary)
		for _, name := range []string{"out", "out2", "../../../../.." + canary, canary} {
			_, err := b.ReadFile(name, "")
			assert.Error(t, err, name)
		}
		assert.Equal(t, "still", sh(t, b, "echo still"))
	})
}

func TestArchiveThatNeverArrives(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, h *Host) {
		for _, end := range []func(b *Box, cancel func()){
			func(_ *Box, cancel func()) { cancel() },
			func(b *Box, _ func()) { assert.NoError(t, b.Stop()) },
		} {
			b := newBox(t, h, backend.Config{})
			ctx, cancel := context.WithCancel(t.Context())
			r, w := io.Pipe()
			done := make(chan error, 1)
			go func() { done <- b.Extract(ctx, r, "") }()
			data, err := io.ReadAll(archive(t, tar.Header{Name: "file"}))
			require.NoError(t, err)
			_, err = w.Write(data[:len(data)-5])
			require.NoError(t, err)
			end(b, cancel)
			require.NoError(t, w.CloseWithError(errors.New("connection lost")))
			require.Error(t, <-done)
			cancel()
		}
	})
}

func TestReadFileAndMkdir(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, h *Host) {
		b := newBox(t, h, backend.Config{})
		require.NoError(t, b.Mkdir("one/two", ""))
		require.NoError(t, b.Mkdir("/vercel/sandbox/one/two", ""))
		require.NoError(t, b.Mkdir("three", "one/two"))
		sh(t, b, "echo text > one/two/three/file; mkfifo fifo; ln -s one/two/three/file link")
		assert.Equal(t, "text\n", read(t, b, "/vercel/sandbox/one/two/three/file"))
		assert.Equal(t, "text\n", read(t, b, "one/../one/two/three/./file"))
		assert.Equal(t, "text\n", read(t, b, "link"))
		r, err := b.ReadFile("file", "/vercel/sandbox/one/two/three")
		require.NoError(t, err)
		require.NoError(t, r.Close())

		for path, want := range map[string]error{
			"missing": fs.ErrNotExist, "missing/deeper": fs.ErrNotExist, "one": inside.ErrIsDir, "fifo": inside.ErrNotRegular,
			"": backend.ErrBadPath, "a\x00": backend.ErrBadPath, strings.Repeat("a/", 3000): backend.ErrBadPath,
		} {
			_, err := b.ReadFile(path, "")
			require.ErrorIs(t, err, want, "%.20q", path)
		}
		require.ErrorIs(t, b.Mkdir("", ""), backend.ErrBadPath)
		require.Error(t, b.Mkdir("link/below", ""))
		require.Error(t, b.Mkdir("link", ""))
	})
}

// TestNamesOfTheHost: in folder mode programs can see the host's names of files, and
// these names work, too.
func TestNamesOfTheHost(t *testing.T) {
	t.Parallel()
	b := newBox(t, sharedHost(t, Folder), backend.Config{Mounts: []backend.Mount{{Path: "/vercel/data", Drive: "named", Keep: true}}})
	sh(t, b, "echo here >file; mkdir dir; echo there >/vercel/data/file")
	assert.Equal(t, "here\n", read(t, b, sh(t, b, "realpath file")))
	assert.Equal(t, "there\n", read(t, b, sh(t, b, "realpath /vercel/data/file")))
	require.NoError(t, b.Mkdir(sh(t, b, "realpath dir")+"/new", ""))
	assert.Equal(t, "new", sh(t, b, "ls dir"))
}

// TestWrittenProgramsRun: a written program can be run at once, even while other
// processes are started, which briefly inherit files that are open for writing.
func TestWrittenProgramsRun(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, h *Host) {
		if h.Mode() == Namespace && os.Getuid() != 0 {
			needs.Other(t, "unshare starts the programs")
		}
		b := newBox(t, h, backend.Config{})
		if h.Mode() == Folder && runtime.GOOS == "linux" {
			dir := sh(t, b, "printf '#!/bin/sh\necho ran\n' >program && chmod +x program && pwd -P")
			held, err := os.OpenFile(filepath.Join(dir, "program"), os.O_WRONLY, 0)
			require.NoError(t, err)
			time.AfterFunc(20*time.Millisecond, func() { _ = held.Close() })
			out, errOut, _ := run(t, b, backend.Spec{Path: "./program"})
			assert.Equal(t, "ran\n", out, errOut)
		}
		if !needs.Slow() {
			return // many programs take many seconds
		}
		ctx, cancel := context.WithCancel(t.Context())
		var others sync.WaitGroup
		for range 4 {
			others.Go(func() {
				for ctx.Err() == nil {
					_ = exec.CommandContext(ctx, "true").Run()
				}
			})
		}
		for i := range 60 {
			name := fmt.Sprint("program", i)
			require.NoError(t, b.Extract(t.Context(), archive(t, tar.Header{Name: name, Mode: 0o755}), backend.WorkDir))
			_, stderr, code := run(t, b, backend.Spec{Path: "./" + name})
			require.NotContains(t, stderr, "busy")
			require.NotEqual(t, 126, code, stderr)
		}
		cancel()
		others.Wait()
	})
}
