package client_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/fstest"
	"testing/iotest"
	"time"

	"github.com/go-vercel/sandbox/internal/test/needs"
	"github.com/go-vercel/sandbox/internal/test/testkit"
	"github.com/go-vercel/sandbox/internal/test/testkit/repository"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/sandboxtest"
)

// describe returns the type, permissions, and content or target of each file in a tree.
func describe(t *testing.T, root string) map[string]string {
	t.Helper()
	out := make(map[string]string)
	require.NoError(t, filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil || name == root {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(root, name)
		out[rel] = info.Mode().String()
		switch {
		case info.Mode()&fs.ModeSymlink != 0:
			target, err := os.Readlink(name)
			out[rel] += " " + target
			return err
		case info.Mode().IsRegular():
			data, err := os.ReadFile(name)
			out[rel] += fmt.Sprintf(" %d %x %d", len(data), sha256.Sum256(data), info.ModTime().Unix())
			return err
		}
		return nil
	}))
	return out
}

// oddTree creates a local tree with modes, links and odd names.
func oddTree(t *testing.T, files int) string {
	t.Helper()
	root := t.TempDir()
	rnd := rand.New(rand.NewPCG(1, 2))
	when := time.Unix(1700000000, 0)
	modes := []fs.FileMode{0o644, 0o755, 0o600, 0o444, 0o640, 0o711}
	write := func(name string, data []byte, mode fs.FileMode) {
		path := filepath.Join(root, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, data, 0o600))
		require.NoError(t, os.Chmod(path, mode))
		require.NoError(t, os.Chtimes(path, when, when))
	}
	for i := range files {
		data := make([]byte, rnd.IntN(3000))
		for j := range data {
			data[j] = byte(rnd.IntN(256))
		}
		write(fmt.Sprintf("d%02d/s%d/f%d", i%40, i%3, i), data, modes[i%len(modes)])
		if i%50 == 0 {
			require.NoError(t, os.Symlink(fmt.Sprintf("../s0/f%d", i), filepath.Join(root, fmt.Sprintf("d%02d/s%d/link%d", i%40, i%3, i))))
		}
	}
	for i, n := range testkit.OddNames {
		write("odd/"+n, []byte(n), modes[i%len(modes)])
		require.NoError(t, os.Symlink(n, filepath.Join(root, "odd", "to"+n[:min(len(n), 200)])))
	}
	write("odd/"+strings.Repeat("deep/", 40)+"file", []byte("deep"), 0o644)
	write("bytes\xff\xfe", []byte("a name that is not UTF-8"), 0o644)
	require.NoError(t, os.Symlink("bytes\xff\xfe", filepath.Join(root, "to\xfdbytes")))
	require.NoError(t, os.Symlink("nowhere", filepath.Join(root, "dangling")))
	require.NoError(t, os.MkdirAll(filepath.Join(root, "empty/inside"), 0o700))
	require.NoError(t, os.Mkdir(filepath.Join(root, "readonly"), 0o755))
	write("readonly/file", []byte("x"), 0o400)
	require.NoError(t, os.Chmod(filepath.Join(root, "readonly"), 0o555))
	t.Cleanup(func() { os.Chmod(filepath.Join(root, "readonly"), 0o755) })
	return root
}

// TestDirectoryRoundTrip uploads a tree and downloads it again: 5,000 files, or
// 50 by default.
func TestDirectoryRoundTrip(t *testing.T) {
	t.Parallel()
	needs.GNU(t)
	count := 5000
	if !needs.Slow() {
		count = 50
	}
	sb := share(t, nil)
	ctx := t.Context()
	local := oddTree(t, count)

	var up, down sandbox.Progress
	require.NoError(t, sb.FS().UploadDir(ctx, local, "tree", &sandbox.UploadOptions{Progress: func(p sandbox.Progress) { up = p }}))
	assert.Equal(t, up.Total, up.Done)
	assert.True(t, strings.HasPrefix(up.Path, "/vercel/tree/"), up.Path)

	back := filepath.Join(t.TempDir(), "made/on/the/way")
	require.NoError(t, sb.FS().DownloadDir(ctx, "tree", back, &sandbox.DownloadDirOptions{Progress: func(p sandbox.Progress) { down = p }}))
	t.Cleanup(func() { os.Chmod(filepath.Join(back, "readonly"), 0o755) })
	assert.Equal(t, up.Done, down.Done)
	assert.EqualValues(t, -1, down.Total)

	want, got := describe(t, local), describe(t, back)
	assert.Len(t, got, len(want))
	for name, w := range want {
		assert.Equal(t, w, got[name], "%q", name)
	}

	if !needs.Slow() {
		return
	}
	// Upload and download again, over the existing files.
	require.NoError(t, sb.FS().Chmod(ctx, "tree/readonly", 0o755))
	require.NoError(t, sb.FS().UploadDir(ctx, local, "tree", nil))
	require.NoError(t, sb.FS().DownloadDir(ctx, "tree", back, nil))
	assert.Equal(t, want, describe(t, back))
}

func TestUploadDirPatterns(t *testing.T) {
	t.Parallel()
	needs.GNU(t)
	sb := share(t, nil)
	ctx := t.Context()
	local := t.TempDir()
	for _, name := range []string{"main.go", "pkg/a.go", "pkg/a_test.go", "node_modules/x/y.go", "README.md", "pkg/data.bin"} {
		path := filepath.Join(local, filepath.FromSlash(name))
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(name), 0o644))
	}
	require.NoError(t, sb.FS().UploadDir(ctx, local, "src", &sandbox.UploadOptions{
		Include: []string{"*.go"}, Exclude: []string{"node_modules", "*_test.go"},
	}))
	var names []string
	require.NoError(t, sb.FS().WalkDir(ctx, "src", func(name string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			names = append(names, name)
		}
		return err
	}))
	assert.Equal(t, []string{"main.go", "pkg/a.go"}, names)

	require.NoError(t, sb.FS().UploadDir(ctx, local, "all", nil))
	back := t.TempDir()
	require.NoError(t, sb.FS().DownloadDir(ctx, "all", back, &sandbox.DownloadDirOptions{Include: []string{"pkg"}, Exclude: []string{"*.bin"}}))
	assert.Equal(t, []string{"pkg", "pkg/a.go", "pkg/a_test.go"}, sortedKeys(describe(t, back)))

	assert.ErrorIs(t, sb.FS().UploadDir(ctx, local, "x", &sandbox.UploadOptions{Exclude: []string{"["}}), sandbox.ErrInvalid)
	assert.ErrorIs(t, sb.FS().UploadDir(ctx, filepath.Join(local, "none"), "x", nil), fs.ErrNotExist)
	assert.ErrorIs(t, sb.FS().DownloadDir(ctx, "none", back, nil), fs.ErrNotExist)
	assert.ErrorIs(t, sb.FS().DownloadDir(ctx, "all/main.go", back, nil), syscall.ENOTDIR)
}

// TestDownloadDirPermissions: DownloadDir creates the destination with the permissions of
// the sandbox's directory. An existing destination keeps its own.
func TestDownloadDirPermissions(t *testing.T) {
	t.Parallel()
	needs.GNU(t)
	sb := share(t, nil)
	testkit.Output(t, sb, "sh", "-c", "mkdir -p closed/in && touch closed/in/f && chmod 700 closed")
	dst := filepath.Join(t.TempDir(), "new", "closed")
	perm := func() os.FileMode {
		info, err := os.Stat(dst)
		require.NoError(t, err)
		return info.Mode().Perm()
	}
	require.NoError(t, sb.FS().DownloadDir(t.Context(), "closed", dst, nil))
	assert.Equal(t, os.FileMode(0o700), perm())
	require.NoError(t, os.Chmod(dst, 0o750))
	require.NoError(t, sb.FS().DownloadDir(t.Context(), "closed", dst, nil))
	assert.Equal(t, os.FileMode(0o750), perm())
}

// TestDownloadDirIntoWorkTree: DownloadDir does not put a sandbox's Git hooks where Git
// would run them, unless an option allows it.
func TestDownloadDirIntoWorkTree(t *testing.T) {
	t.Parallel()
	needs.GNU(t)
	sb := share(t, nil)
	ctx := t.Context()
	testkit.Output(t, sb, "sh", "-c", "mkdir -p w/.git/hooks w/lib/.GIT w/src && touch w/.git/hooks/pre-commit w/lib/.GIT/config w/.gitignore w/src/a")
	tree := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(tree, ".git"), 0o755))
	for _, dst := range []string{tree, filepath.Join(tree, "sub", "deep")} {
		require.NoError(t, sb.FS().DownloadDir(ctx, "w", dst, nil))
	}
	assert.Equal(t, []string{".git", ".gitignore", "lib", "src", "src/a", "sub", "sub/deep",
		"sub/deep/.gitignore", "sub/deep/lib", "sub/deep/src", "sub/deep/src/a"}, sortedKeys(describe(t, tree)))
	require.NoError(t, sb.FS().DownloadDir(ctx, "w", filepath.Join(tree, "all"), &sandbox.DownloadDirOptions{DotGit: true}))
	assert.FileExists(t, filepath.Join(tree, "all", ".git", "hooks", "pre-commit"))
	apart := t.TempDir()
	require.NoError(t, sb.FS().DownloadDir(ctx, "w", apart, nil))
	assert.FileExists(t, filepath.Join(apart, ".git", "hooks", "pre-commit"))
}

// TestDownloadDirOfRepositories downloads directories that Git considers repositories into
// a working tree. DownloadDir reports the omitted files, and git status runs no program of
// the sandbox.
func TestDownloadDirOfRepositories(t *testing.T) {
	sb := share(t, nil)
	kinds := repository.Kinds(t)
	if !needs.Slow() {
		kinds = kinds[3:5] // the tests of internal/untar use all of them
	}
	for _, r := range kinds {
		from, folder := t.TempDir(), r.Folder(t)
		repository.WriteTree(t, from, r.Files)
		require.NoError(t, sb.FS().UploadDir(t.Context(), from, r.Name, nil))
		var leftOut []string
		opts := &sandbox.DownloadDirOptions{LeftOut: func(name string) { leftOut = append(leftOut, name) }}
		require.NoError(t, sb.FS().DownloadDir(t.Context(), r.Name, folder, opts), r.Name)
		assert.False(t, r.Status(t, folder), r.Name)
		assert.NotEmpty(t, leftOut, r.Name)
		require.NoError(t, sb.FS().DownloadDir(t.Context(), r.Name, folder, &sandbox.DownloadDirOptions{DotGit: true}), r.Name)
		assert.True(t, r.Status(t, folder), "%s with DotGit", r.Name)
	}
}

func sortedKeys(m map[string]string) []string {
	var out []string
	for k := range m {
		out = append(out, filepath.ToSlash(k))
	}
	slices.Sort(out)
	return out
}

func TestCopyFS(t *testing.T) {
	t.Parallel()
	sb := shareIsolated(t, nil)
	ctx := t.Context()
	fsys := fstest.MapFS{
		"bin/run":  {Data: []byte("#!/bin/sh\necho hi"), Mode: 0o555},
		"etc/conf": {Data: []byte("a=b"), Mode: 0o400},
		"link":     {Data: []byte("etc/conf"), Mode: fs.ModeSymlink},
		"empty":    {Mode: fs.ModeDir | 0o700},
	}
	var last sandbox.Progress
	require.NoError(t, sb.FS().CopyFS(ctx, "/tmp/copied", fsys, &sandbox.UploadOptions{Progress: func(p sandbox.Progress) { last = p }}))
	assert.EqualValues(t, 20, last.Done)
	f := sb.FS()
	for name, mode := range map[string]fs.FileMode{
		"bin/run": 0o755, "etc/conf": 0o644, "link": fs.ModeSymlink | 0o777, "empty": fs.ModeDir | 0o755, "bin": fs.ModeDir | 0o755,
	} {
		info, err := f.Lstat(ctx, "/tmp/copied/"+name)
		require.NoError(t, err)
		assert.Equal(t, mode, info.Mode(), name)
	}
	data, err := f.ReadFile(ctx, "/tmp/copied/link")
	require.NoError(t, err)
	assert.Equal(t, "a=b", string(data))

	require.NoError(t, sb.FS().CopyFS(ctx, "nothing", fstest.MapFS{}, nil))
	info, err := f.Stat(ctx, "nothing")
	require.NoError(t, err)
	assert.True(t, info.IsDir())

	var leftOut []string
	odd := fstest.MapFS{"pipe": {Mode: fs.ModeNamedPipe}, "device": {Mode: fs.ModeDevice | fs.ModeCharDevice}, "other": {Mode: fs.ModeIrregular}, "z": {}}
	require.NoError(t, sb.FS().CopyFS(ctx, "x", odd, &sandbox.UploadOptions{LeftOut: func(name string) { leftOut = append(leftOut, name) }}))
	assert.Equal(t, []string{"device", "other", "pipe"}, leftOut)
	there, err := f.Exists(ctx, "x/z")
	require.NoError(t, err)
	assert.True(t, there)

	withoutLinks := struct{ fs.FS }{fstest.MapFS{"link": {Data: []byte("z"), Mode: fs.ModeSymlink}, "z": {}}}
	var changed *sandbox.ChangedError
	require.ErrorAs(t, f.CopyFS(ctx, "y", withoutLinks, nil), &changed)
	require.Len(t, changed.Unreadable, 1)
	assert.Equal(t, "link", changed.Unreadable[0].Path)
}

// sized is a reader that reports size as its length.
type sized struct {
	io.Reader
	size int64
}

func (s *sized) Seek(_ int64, whence int) (int64, error) {
	if whence == io.SeekEnd {
		return s.size, nil
	}
	return 0, nil
}

func TestWriteFilesSources(t *testing.T) {
	t.Parallel()
	srv, sb := start(t, nil)
	ctx := t.Context()
	// The first attempt fails, so the client reads each source twice.
	srv.Inject(sandboxtest.Fault{Operation: sandboxtest.WriteFiles, ActThenStatus: 502, Times: 1})
	reader := strings.NewReader("skipped:rest")
	_, err := reader.Seek(8, io.SeekStart)
	require.NoError(t, err)
	long := strings.Repeat("x", 100_000)
	when := time.Unix(1600000000, 0)
	var total, done int64
	require.NoError(t, sb.WriteFiles(ctx, []sandbox.File{
		{Path: "bytes", Content: []byte{0, 0xff}},
		{Path: "text", Content: []byte("text"), ModTime: when},
		{Path: "reader", Reader: reader, Mode: new(fs.FileMode(0o600))},
		{Path: "long", Reader: strings.NewReader(long), Mode: new(fs.FileMode(0o755))},
		{Path: "nothing"},
		{Path: "inaccessible", Content: []byte("x"), Mode: new(fs.FileMode(0))},
	}, &sandbox.WriteFilesOptions{Progress: func(p sandbox.Progress) { total, done = p.Total, p.Done }}))
	assert.Equal(t, total, done)
	assert.EqualValues(t, 2+4+4+100_000+1, total)

	f := sb.FS()
	for name, want := range map[string]string{"bytes": "\x00\xff", "text": "text", "reader": "rest", "long": long, "nothing": ""} {
		data, err := f.ReadFile(ctx, name)
		require.NoError(t, err, name)
		assert.Equal(t, want, string(data), name)
	}
	info, err := f.Stat(ctx, "text")
	require.NoError(t, err)
	assert.Equal(t, when, info.ModTime())
	assert.Equal(t, fs.FileMode(0o644), info.Mode())
	info, err = f.Stat(ctx, "inaccessible")
	require.NoError(t, err)
	assert.Zero(t, info.Mode())
}

// oneFile is a file system with one file, a, of 32 GiB.
type oneFile struct{ source *endless }

func (f oneFile) Open(string) (fs.File, error) { return f, nil }
func (f oneFile) ReadDir(string) ([]fs.DirEntry, error) {
	return []fs.DirEntry{fs.FileInfoToDirEntry(f)}, nil
}
func (f oneFile) Stat() (fs.FileInfo, error) { return f, nil }
func (f oneFile) Read(p []byte) (int, error) { return f.source.Read(p) }
func (f oneFile) Close() error               { return f.source.Close() }
func (f oneFile) Name() string               { return "a" }
func (f oneFile) Size() int64                { return 32 << 30 }
func (f oneFile) Mode() fs.FileMode          { return 0o644 }
func (f oneFile) ModTime() time.Time         { return time.Time{} }
func (f oneFile) IsDir() bool                { return false }
func (f oneFile) Sys() any                   { return nil }

// endless is a source without an end. If stuck is set, it returns a little data and then
// blocks until it is closed.
type endless struct {
	stuck  bool
	read   func() // called by Read unless nil
	given  int
	once   sync.Once
	closed chan struct{}
}

func (s *endless) Read(p []byte) (int, error) {
	if s.stuck && s.given > 0 {
		<-s.closed
		return 0, errors.New("closed")
	}
	if s.read != nil {
		s.read()
	}
	n := min(len(p), 1000)
	s.given += n
	return n, nil
}

func (s *endless) Close() error {
	s.once.Do(func() { close(s.closed) })
	return nil
}

// If the API refuses an upload, or the caller cancels it, the client closes the sources.
func TestWriteFilesRefusedEarly(t *testing.T) {
	t.Parallel()
	srv, sb := start(t, nil)
	upload := func(t *testing.T, ctx context.Context, source *endless) error {
		ended := false
		err := sb.FS().CopyFS(ctx, ".", oneFile{source}, &sandbox.UploadOptions{Progress: func(sandbox.Progress) { assert.False(t, ended) }})
		ended = true
		select {
		case <-source.closed:
		default:
			t.Error("the source is still open")
		}
		return err
	}
	t.Run("refused", func(t *testing.T) {
		defer srv.Inject(sandboxtest.Fault{Operation: sandboxtest.WriteFiles, Status: 403, Times: 1})()
		err := upload(t, t.Context(), &endless{closed: make(chan struct{})})
		assert.Error(t, err)
	})
	t.Run("cancelled", func(t *testing.T) {
		for _, stuck := range []bool{false, true} {
			ctx, cancel := context.WithCancelCause(t.Context())
			err := upload(t, ctx, &endless{stuck: stuck, closed: make(chan struct{}), read: func() { cancel(context.DeadlineExceeded) }})
			assert.ErrorIs(t, err, context.DeadlineExceeded)
		}
	})
}

func TestWriteFilesRefusals(t *testing.T) {
	t.Parallel()
	srv, sb := start(t, nil)
	ctx := t.Context()
	before := len(srv.Requests())
	for _, f := range []sandbox.File{
		{}, {Path: "."}, {Path: "/"}, {Path: "a\x00"},
		{Path: "a", Content: []byte("x"), Reader: strings.NewReader("x")},
		{Path: "a", Mode: new(fs.ModeDir)},
	} {
		assert.ErrorIs(t, sb.WriteFiles(ctx, []sandbox.File{{Path: "fine"}, f}, nil), sandbox.ErrInvalid, "%+v", f.Path)
	}
	assert.Len(t, srv.Requests(), before, "a request was made")

	broken := errors.New("broken source")
	err := sb.WriteFiles(ctx, []sandbox.File{{Path: "a", Reader: &sized{Reader: iotest.ErrReader(broken), size: 1}}}, nil)
	assert.ErrorIs(t, err, broken)
	err = sb.WriteFiles(ctx, []sandbox.File{{Path: "a", Reader: &sized{Reader: strings.NewReader("four"), size: 5}}}, nil)
	assert.Error(t, err, "the source is shorter than its size")
	err = sb.WriteFiles(ctx, []sandbox.File{{Path: "a", Reader: &sized{Reader: strings.NewReader("four"), size: 3}}, {Path: "b"}}, nil)
	var grown *sandbox.ChangedError
	require.ErrorAs(t, err, &grown, "the source is longer than its size")
	assert.Equal(t, []string{"a"}, grown.Changed)
	data, err := sb.FS().ReadFile(ctx, "a")
	require.NoError(t, err)
	assert.Equal(t, "fou", string(data))
}

func TestCreateStream(t *testing.T) {
	t.Parallel()
	needs.GNU(t)
	srv, sb := start(t, nil)
	ctx := t.Context()
	f := sb.FS()
	list := func() []string {
		entries, err := f.ReadDir(ctx, ".")
		require.NoError(t, err)
		var names []string
		for _, d := range entries {
			names = append(names, d.Name())
		}
		return names
	}
	sizes := []int{0, 4<<20 + 1, 1, 4 << 20, 8<<20 + 1}
	if !needs.Slow() {
		sizes = sizes[:2]
	}
	for _, size := range sizes {
		content := make([]byte, size)
		rand.NewChaCha8([32]byte{1}).Read(content)
		before := len(srv.Requests())
		w, err := f.Create(ctx, "big", &sandbox.WriterOptions{Mode: new(fs.FileMode(0o751))})
		require.NoError(t, err)
		n, err := io.Copy(w, bytes.NewReader(content))
		require.NoError(t, err)
		assert.EqualValues(t, size, n)
		require.NoError(t, w.Close())
		if size < 4<<20 {
			assert.Len(t, srv.Requests(), before+2, "an upload and a command, also for an empty file")
		}
		back, err := f.ReadFile(ctx, "big")
		require.NoError(t, err)
		assert.True(t, bytes.Equal(content, back), "%d bytes", size)
		info, err := f.Stat(ctx, "big")
		require.NoError(t, err)
		assert.Equal(t, fs.FileMode(0o751), info.Mode())
		assert.Equal(t, []string{"big"}, list())
	}

	// Aborting keeps the old file, and leaves no temporary file.
	w, err := f.Create(ctx, "big", nil)
	require.NoError(t, err)
	_, err = w.Write(make([]byte, 8<<20+1))
	require.NoError(t, err)
	w.Abort()
	assert.Equal(t, []string{"big"}, list())
	_, err = w.Write([]byte("x"))
	assert.ErrorIs(t, err, fs.ErrClosed)

	cancelled, cancel := context.WithCancel(ctx)
	w, err = f.Create(cancelled, "big", nil)
	require.NoError(t, err)
	_, err = w.Write(make([]byte, 5<<20))
	require.NoError(t, err)
	cancel()
	_, err = w.Write(make([]byte, 5<<20))
	assert.ErrorIs(t, err, context.Canceled)
	assert.ErrorIs(t, w.Close(), context.Canceled)
	assert.Equal(t, []string{"big"}, list())
	info, err := f.Stat(ctx, "big")
	require.NoError(t, err)
	assert.EqualValues(t, sizes[len(sizes)-1], info.Size())
}

// TestAppendCosts: AppendFile sends only the new data, in one request, and keeps the mode.
func TestAppendCosts(t *testing.T) {
	t.Parallel()
	needs.GNU(t)
	srv, sb := testkit.Start(t, nil)
	ctx := t.Context()
	f := sb.FS()
	require.NoError(t, f.WriteFile(ctx, "log", bytes.Repeat([]byte("x"), 5<<20), 0o600))
	before := len(srv.Requests())
	for range 3 {
		require.NoError(t, f.AppendFile(ctx, "log", []byte("line\x00\xff\n")))
	}
	assert.Len(t, srv.Requests(), before+3)
	large := bytes.Repeat([]byte("0123456789abcdef"), 20_000)
	require.NoError(t, f.AppendFile(ctx, "log", large))
	info, err := f.Stat(ctx, "log")
	require.NoError(t, err)
	assert.EqualValues(t, 5<<20+3*7+len(large), info.Size())
	assert.Equal(t, fs.FileMode(0o600), info.Mode())
	list, err := f.ReadDir(ctx, "/tmp")
	require.NoError(t, err)
	assert.Empty(t, list, "the temporary upload is removed")

	require.NoError(t, f.AppendFile(ctx, "no/such/dir/file", []byte("made")))
	data, err := f.ReadFile(ctx, "no/such/dir/file")
	require.NoError(t, err)
	assert.Equal(t, "made", string(data))
	assert.ErrorIs(t, f.AppendFile(ctx, "no/such", []byte("x")), syscall.EISDIR)
}

// TestNamesThatAreNotUTF8 tries all operations with names that JSON can't
// represent.
func TestNamesThatAreNotUTF8(t *testing.T) {
	t.Parallel()
	needs.GNU(t)
	sb := share(t, nil)
	ctx := t.Context()
	f := sb.FS()
	name := "dir\xff/caf\xe9 'x'"
	require.NoError(t, f.WriteFile(ctx, name, []byte("\x80content"), 0o640))
	require.NoError(t, f.AppendFile(ctx, name, []byte("+")))
	data, err := f.ReadFile(ctx, name)
	require.NoError(t, err)
	assert.Equal(t, "\x80content+", string(data))
	list, err := f.ReadDir(ctx, "dir\xff")
	require.NoError(t, err)
	require.Len(t, list, 1)
	assert.Equal(t, "caf\xe9 'x'", list[0].Name())
	info, err := f.Stat(ctx, name)
	require.NoError(t, err)
	assert.Equal(t, fs.FileMode(0o640), info.Mode())
	require.NoError(t, f.Symlink(ctx, "to\xfe", "link\xfd"))
	target, err := f.Readlink(ctx, "link\xfd")
	require.NoError(t, err)
	assert.Equal(t, "to\xfe", target)
	real, err := f.RealPath(ctx, name)
	require.NoError(t, err)
	above, err := f.RealPath(ctx, "/vercel") // in folder mode, a folder of the machine
	require.NoError(t, err)
	assert.Equal(t, above+"/"+name, real)
	found, err := f.Exists(ctx, name)
	require.NoError(t, err)
	assert.True(t, found)
	require.NoError(t, f.Rename(ctx, name, "plain"))
	require.NoError(t, f.Mkdir(ctx, "new\xfc", 0o755))
	require.NoError(t, f.RemoveAll(ctx, "dir\xff"))
	_, err = f.Stat(ctx, "dir\xff")
	assert.ErrorIs(t, err, fs.ErrNotExist)
	_, err = f.ReadFile(ctx, "no\xff")
	assert.ErrorIs(t, err, fs.ErrNotExist)

	dst := filepath.Join(t.TempDir(), "local")
	require.NoError(t, f.WriteFile(ctx, "other\xff", []byte("y"), 0o644))
	require.NoError(t, sb.FS().DownloadFile(ctx, "other\xff", dst, nil))
	got, err := os.ReadFile(dst)
	require.NoError(t, err)
	assert.Equal(t, "y", string(got))
}
