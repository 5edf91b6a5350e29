package client_test

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/internal/test/needs"
	"github.com/go-vercel/sandbox/internal/test/testkit"
)

// fate is the result of copying a file.
type fate int

const (
	arrives fate = iota
	isLeftOut
	hasChanged // the file arrives and is reported as changed
	isGone
	isUnreadable
	isUnwritable
)

// kind is a kind of file, with the expected results of copying it with a directory and
// from an fs.FS. The table in docs/files.md has the same kinds.
type kind struct {
	name     string
	make     func(path string) error
	during   func(path string) error // called while the file is read
	before   func(path string) error // called while an earlier file is read
	existing func(path string) error // makes the existing file at the destination
	dir      fate
	fsys     fate
	check    func(t *testing.T, info fs.FileInfo)
}

func write(content string) func(string) error {
	return func(path string) error { return os.WriteFile(path, []byte(content), 0o644) }
}

func symlink(to string) func(string) error {
	return func(path string) error { return os.Symlink(to, path) }
}

func mkdir(path string) error { return os.Mkdir(path, 0o755) }

func mkfifo(path string) error { return syscall.Mkfifo(path, 0o644) }

func touch(when string) func(string) error {
	return func(path string) error { return exec.Command("touch", "-d", when, path).Run() }
}

func hasSize(size int64) func(*testing.T, fs.FileInfo) {
	return func(t *testing.T, info fs.FileInfo) { assert.Equal(t, size, info.Size(), info.Name()) }
}

func isA(kind fs.FileMode) func(*testing.T, fs.FileInfo) {
	return func(t *testing.T, info fs.FileInfo) { assert.Equal(t, kind, info.Mode().Type(), info.Name()) }
}

func hasYear(year int) func(*testing.T, fs.FileInfo) {
	return func(t *testing.T, info fs.FileInfo) {
		assert.Equal(t, year, info.ModTime().UTC().Year(), info.Name())
	}
}

// uploadKinds returns the kinds of files for a local directory dir. The symbolic link
// given leads to dir.
func uploadKinds(dir, given string) []kind {
	const size = 400_000
	long := strings.Repeat("n", 255)
	text := strings.Repeat("x", size)
	kinds := []kind{
		{name: "a-file", make: write(text), check: hasSize(size)},
		{name: "changing", make: write(text), during: write(strings.Repeat("y", size)), dir: hasChanged, check: hasSize(size)},
		{name: "fifo", make: mkfifo, dir: isLeftOut, fsys: isLeftOut},
		{name: "growing", make: write(text), during: func(path string) error {
			f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
			if err != nil {
				return err
			}
			_, err = f.WriteString("more")
			return errors.Join(err, f.Close())
		}, dir: hasChanged, fsys: hasChanged, check: hasSize(size)},
		{name: "link", make: symlink("a-file")},
		{name: "link-absolute", make: symlink(dir + "//a-file"), fsys: isLeftOut},
		{name: "link-absolute-given", make: symlink(given + "/a-file"), fsys: isLeftOut},
		{name: "link-broken", make: symlink("nothing")},
		{name: "link-detour", make: symlink("z/../a-file"), dir: isLeftOut, fsys: isLeftOut},
		{name: "link-out", make: symlink("../x"), dir: isLeftOut, fsys: isLeftOut},
		{name: "link-out-absolute", make: symlink("/etc/passwd"), dir: isLeftOut, fsys: isLeftOut},
		{name: long, make: write("x")},
		{name: "not UTF-8 \xff", make: write("x"), fsys: isUnreadable},
		{name: "shrinking", make: write(text), during: func(path string) error { return os.Truncate(path, 1000) }, dir: hasChanged, fsys: hasChanged, check: hasSize(1000)},
		{name: "socket", make: func(path string) error { return syscall.Mknod(path, syscall.S_IFSOCK|0o644, 0) }, dir: isLeftOut, fsys: isLeftOut},
		{name: "sparse", make: func(path string) error { return errors.Join(write("x")(path), os.Truncate(path, 3<<20)) }, check: hasSize(3 << 20)},
		{name: "vanishing", make: write("x"), before: os.Remove, dir: isGone, fsys: isGone},
		{name: "vanishing-dir", make: func(path string) error { return os.MkdirAll(path+"/sub", 0o755) }, before: os.RemoveAll, dir: isGone, fsys: isGone},
		{name: "y1960", make: touch("1960-07-01"), check: hasYear(1960)},
		{name: "y2300", make: touch("2300-07-01"), check: hasYear(2262)},
		{name: "z", make: write("x"), check: hasSize(1)},
	}
	if os.Geteuid() == 0 {
		return append(kinds, kind{name: "device", make: func(path string) error { return syscall.Mknod(path, syscall.S_IFCHR|0o644, 1<<8|3) }, dir: isLeftOut, fsys: isLeftOut})
	}
	return append(kinds,
		kind{name: "unreadable", make: func(path string) error { return os.WriteFile(path, nil, 0) }, dir: isUnreadable, fsys: isUnreadable},
		kind{name: "unreadable-dir", make: func(path string) error { return os.Mkdir(path, 0) }, dir: isUnreadable, fsys: isUnreadable})
}

// refusingFS is a file system in which some names can't be opened.
type refusingFS struct{ fs.ReadLinkFS }

func (f refusingFS) Open(name string) (fs.File, error) {
	if strings.HasPrefix(name, "refused") {
		return nil, &fs.PathError{Op: "open", Path: name, Err: syscall.EACCES}
	}
	return f.ReadLinkFS.Open(name)
}

// TestUploadOfEveryKind uploads a directory with a file of each kind, with UploadDir and
// with CopyFS. Readable files arrive, and LeftOut or the error names the others.
func TestUploadOfEveryKind(t *testing.T) {
	t.Parallel()
	sb := share(t, nil)
	for _, way := range []string{"UploadDir", "CopyFS"} {
		for _, withLeftOut := range []bool{true, false} {
			if !withLeftOut && !needs.Slow() {
				continue
			}
			dir := t.TempDir()
			given := filepath.Join(t.TempDir(), "given")
			require.NoError(t, os.Symlink(dir, given))
			kinds := uploadKinds(dir, given)
			if way == "CopyFS" {
				kinds = append(kinds, kind{name: "refused", make: write("x"), fsys: isUnreadable},
					kind{name: "refused-dir", make: mkdir, fsys: isUnreadable})
			}
			// Only files whose names sort before these are read before them.
			slices.SortFunc(kinds, func(a, b kind) int { return strings.Compare(a.name, b.name) })
			for _, k := range kinds {
				require.NoError(t, k.make(filepath.Join(dir, k.name)), k.name)
			}
			old := time.Now().Add(-time.Hour)
			for _, k := range kinds {
				if k.during != nil {
					require.NoError(t, os.Chtimes(filepath.Join(dir, k.name), old, old))
				}
			}
			var once sync.Once
			seen := map[string]bool{}
			var named []string
			o := &sandbox.UploadOptions{Progress: func(p sandbox.Progress) {
				once.Do(func() {
					for _, k := range kinds {
						if k.before != nil {
							assert.NoError(t, k.before(filepath.Join(dir, k.name)))
						}
					}
				})
				for _, k := range kinds {
					if k.during != nil && strings.HasSuffix(p.Path, "/"+k.name) && !seen[k.name] {
						seen[k.name] = true
						assert.NoError(t, k.during(filepath.Join(dir, k.name)))
					}
				}
			}}
			if withLeftOut {
				o.LeftOut = func(name string) { named = append(named, name) }
			}
			var err error
			to, path := "kinds-"+filepath.Base(dir), ""
			if way == "UploadDir" {
				path = given
				err = sb.FS().UploadDir(t.Context(), given, to, o)
			} else {
				err = sb.FS().CopyFS(t.Context(), to, refusingFS{os.DirFS(dir).(fs.ReadLinkFS)}, o)
			}
			list, listErr := sb.FS().ReadDir(t.Context(), to)
			require.NoError(t, listErr)
			checkKinds(t, way, kinds, err, path, named, withLeftOut, func(name string) (fs.FileInfo, error) {
				for _, e := range list {
					if e.Name() == name {
						return e.Info()
					}
				}
				return nil, fs.ErrNotExist
			})
			for _, name := range []string{"link-absolute", "link-absolute-given"} {
				if target, err := sb.FS().Readlink(t.Context(), to+"/"+name); way == "UploadDir" {
					assert.NoError(t, err)
					assert.Equal(t, "a-file", target, name)
				}
			}
			data, err := sb.FS().ReadFile(t.Context(), to+"/shrinking")
			require.NoError(t, err)
			assert.Equal(t, strings.Repeat("x", 1000), string(data), "%s: the content was never in the file", way)
		}
	}
}

// checkKinds checks that each kind has its expected fate.
func checkKinds(t *testing.T, way string, kinds []kind, err error, path string, named []string, withLeftOut bool, stat func(name string) (fs.FileInfo, error)) {
	t.Helper()
	var e *sandbox.ChangedError
	require.ErrorAs(t, err, &e, way)
	assert.Equal(t, path, e.Path)
	want := map[fate][]string{}
	for _, k := range kinds {
		is := k.dir
		if way == "CopyFS" {
			is = k.fsys
		}
		want[is] = append(want[is], k.name)
		info, err := stat(k.name)
		if is == isLeftOut || is == isGone || is == isUnreadable {
			assert.ErrorIs(t, err, fs.ErrNotExist, "%s: %q", way, k.name)
		} else if is == isUnwritable && k.check == nil {
			continue // a directory is in the way of this file
		} else if assert.NoError(t, err, "%s: %q", way, k.name) && k.check != nil {
			k.check(t, info)
		}
	}
	var not []string
	for _, u := range e.Unreadable {
		not = append(not, u.Path)
		assert.ErrorContains(t, err, u.Err.Error())
	}
	assert.ElementsMatch(t, want[hasChanged], e.Changed, way)
	assert.ElementsMatch(t, want[isGone], e.Gone, way)
	assert.ElementsMatch(t, want[isUnreadable], not, way)
	not = nil
	for _, u := range e.Unwritable {
		not = append(not, u.Path)
	}
	assert.ElementsMatch(t, want[isUnwritable], not, way)
	if withLeftOut {
		assert.ElementsMatch(t, want[isLeftOut], named, way)
	}
	if len(want[isUnwritable]) > 0 {
		assert.ErrorContains(t, err, "over-dir (a directory is in the way: ")
		assert.ErrorIs(t, err, fs.ErrExist)
	}
	if len(want[isUnreadable]) > 0 && way != "CopyFS" {
		assert.ErrorIs(t, err, fs.ErrPermission)
	}
}

// TestDownloadOfEveryKind downloads a directory with a file of each kind.
// TestDownloadDirInUse covers other changes during a download.
func TestDownloadOfEveryKind(t *testing.T) {
	t.Parallel()
	needs.GNU(t)
	needs.Programs(t, "perl")
	sb := shareIsolated(t, &sandbox.CreateOptions{Env: sandbox.Env{"PATH": "/vercel/bin:/usr/local/bin:/usr/bin:/bin"}})
	testkit.NeedBox(t, sb) // the test replaces tar in /vercel/bin
	ctx, f := t.Context(), sb.FS()
	require.NoError(t, f.WriteFile(ctx, "/vercel/bin/tar", []byte(tarMeanwhile), 0o755))
	require.NoError(t, f.WriteFile(ctx, "/vercel/during", []byte("echo more >> growing; rm vanishing"), 0o644))
	const size = 400_000
	long := strings.Repeat("n", 255)
	kinds := []kind{
		{name: "growing", dir: hasChanged},
		{name: "fifo", dir: isLeftOut},
		{name: "socket", dir: isLeftOut},
		{name: "link"}, {name: "link-broken"}, {name: "link-absolute"},
		{name: "link-detour", dir: isLeftOut}, {name: "link-out", dir: isLeftOut}, {name: "link-out-absolute", dir: isLeftOut},
		{name: long}, {name: "not UTF-8 \xff"},
		{name: "sparse", check: hasSize(3 << 20)},
		{name: "unreadable", dir: isUnreadable}, {name: "unreadable-dir", dir: isUnreadable},
		{name: "vanishing", dir: isGone},
		{name: "over-dir", dir: isUnwritable, existing: mkdir, check: isA(fs.ModeDir)},
		{name: "over-fifo", dir: isUnwritable, existing: mkfifo, check: isA(fs.ModeNamedPipe)},
		{name: "over-link", existing: symlink("/etc/passwd"), check: hasSize(2)},
		{name: "over-unwritable", existing: func(path string) error { return os.WriteFile(path, nil, 0) }, check: hasSize(2)},
		{name: "sub", existing: mkfifo, dir: isUnwritable}, {name: "sub/file", dir: isUnwritable},
		{name: "sub-over-file", existing: write("x"), check: isA(fs.ModeDir)},
		{name: "sub-over-link", existing: symlink("/etc"), check: isA(fs.ModeDir)},
		{name: "y1960", check: hasYear(1960)},
		{name: "y2300", check: hasYear(2262)},
		{name: "z", check: hasSize(2)},
	}
	testkit.Output(t, sb, "bash", "-e", "-c", `mkdir -p d/sub && cd d
		head -c 400000 /dev/urandom >growing; ln -s z link; ln -s nothing link-broken; ln -s "$PWD/z" link-absolute
		ln -s sub/../z link-detour; ln -s ../x link-out; ln -s /etc/passwd link-out-absolute; mkfifo fifo
		perl -MSocket -e 'socket(S,PF_UNIX,SOCK_STREAM,0) && bind(S,sockaddr_un("socket")) or die'
		: >`+long+`; : >$'not UTF-8 \xff'; truncate -s 3M sparse
		echo s >unreadable; mkdir unreadable-dir; chmod 0 unreadable unreadable-dir
		echo x >vanishing; touch -d 1960-07-01 y1960; touch -d 2300-07-01 y2300; echo z >z
		mkdir sub-over-file sub-over-link
		for name in over-dir over-fifo over-link over-unwritable sub/file sub-over-file/file; do echo x >$name; done`)
	for _, withLeftOut := range []bool{true, false} {
		if !withLeftOut && !needs.Slow() {
			continue
		}
		testkit.Output(t, sb, "bash", "-e", "-c", "cd d; head -c 400000 /dev/urandom >growing; : >vanishing")
		dst := t.TempDir()
		for _, k := range kinds {
			if k.existing != nil {
				require.NoError(t, k.existing(filepath.Join(dst, k.name)))
			}
		}
		var named []string
		o := &sandbox.DownloadDirOptions{}
		if withLeftOut {
			o.LeftOut = func(name string) { named = append(named, name) }
		}
		err := f.DownloadDir(ctx, "d", dst, o)
		// The directory itself is also reported as changed, because a file was removed from it.
		if e, ok := errors.AsType[*sandbox.ChangedError](err); ok {
			e.Changed = slices.DeleteFunc(e.Changed, func(name string) bool { return name == "." })
		}
		checkKinds(t, "DownloadDir", kinds, err, "d", named, withLeftOut, func(name string) (fs.FileInfo, error) { return os.Lstat(filepath.Join(dst, name)) })
		info, err := os.Stat(filepath.Join(dst, "growing"))
		require.NoError(t, err)
		assert.GreaterOrEqual(t, info.Size(), int64(size))
		link, err := os.Readlink(filepath.Join(dst, "link-absolute"))
		require.NoError(t, err)
		assert.Equal(t, "z", link)
		assert.FileExists(t, filepath.Join(dst, "sub-over-file", "file"))
	}
}

// TestKilledDownload: the temporary file of a killed download is not uploaded, and the
// next download to its directory removes it.
func TestKilledDownload(t *testing.T) {
	t.Parallel()
	needs.GNU(t)
	sb := share(t, nil)
	ctx, f := t.Context(), sb.FS()
	require.NoError(t, f.WriteFile(ctx, "d/sub/file", []byte("x"), 0o644))
	const left = ".download-ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	dir := t.TempDir()
	leave := func() {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, "sub"), 0o755))
		for _, name := range []string{left, "sub/" + left} {
			require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte("part"), 0o600))
		}
	}
	leave()
	require.NoError(t, f.UploadDir(ctx, dir, "up", nil))
	assert.Equal(t, "up\nup/sub", strings.TrimSpace(testkit.Output(t, sb, "find", "up")))
	require.NoError(t, f.DownloadFile(ctx, "d/sub/file", filepath.Join(dir, "new"), nil))
	assert.NoFileExists(t, filepath.Join(dir, left))
	leave()
	require.NoError(t, f.DownloadDir(ctx, "d", dir, nil))
	assert.Equal(t, []string{"new", "sub"}, testkit.DirNames(t, dir))
	assert.Equal(t, []string{"file"}, testkit.DirNames(t, filepath.Join(dir, "sub")))
}
