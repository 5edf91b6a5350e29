package untar

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

type entry struct {
	tar.Header
	content string
}

func file(name, content string) entry {
	return entry{tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644}, content}
}

func dir(name string, mode int64) entry {
	return entry{tar.Header{Name: name, Typeflag: tar.TypeDir, Mode: mode}, ""}
}

func symlink(name, target string) entry {
	return entry{tar.Header{Name: name, Typeflag: tar.TypeSymlink, Linkname: target}, ""}
}

func hardlink(name, target string) entry {
	return entry{tar.Header{Name: name, Typeflag: tar.TypeLink, Linkname: target}, ""}
}

func archive(t testing.TB, entries ...entry) *bytes.Buffer {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		e.Size = int64(len(e.content))
		require.NoError(t, w.WriteHeader(&e.Header))
		_, err := io.WriteString(w, e.content)
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	return &b
}

var lax = Options{MaxEntries: 1000, MaxBytes: 1 << 40}

// extract unpacks into the folder "in" of a new directory, next to which
// nothing may appear.
func extract(t testing.TB, r io.Reader, opts Options) (in string, err error) {
	outer := t.TempDir()
	in = filepath.Join(outer, "in")
	t.Cleanup(func() { // runs before the cleanup of TempDir, which can't remove read-only directories
		_ = filepath.WalkDir(in, func(path string, d fs.DirEntry, err error) error {
			if d != nil && d.IsDir() {
				_ = os.Chmod(path, 0o755)
			}
			return nil
		})
	})
	require.NoError(t, os.Mkdir(in, 0o755))
	root, err := os.OpenRoot(in)
	require.NoError(t, err)
	defer root.Close()
	err = unpack(t.Context(), r, root, opts)
	list, rerr := os.ReadDir(outer)
	require.NoError(t, rerr)
	require.Len(t, list, 1, "something was written beside the directory")
	return in, err
}

func TestExtract(t *testing.T) {
	when := time.Unix(1700000000, 0)
	a := file("./d/sub/x", "content")
	a.Mode, a.ModTime = 0o4751, when
	d := dir("./d/", 0o555)
	d.ModTime = when
	in, err := extract(t, archive(t,
		dir("./", 0o700), d, dir("./d/sub", 0o755), a, symlink("d/l", "sub/x"), hardlink("d/h", "d/sub/x"),
		file("e", ""), file("no/dir/entry", "1"), symlink("up", "d/../e"[3:]),
	), lax)
	require.NoError(t, err)

	info, err := os.Stat(filepath.Join(in, "d/sub/x"))
	require.NoError(t, err)
	assert.Equal(t, fs.FileMode(0o751), info.Mode(), "set-id bits are not taken over")
	assert.Equal(t, when, info.ModTime())
	info, err = os.Stat(filepath.Join(in, "d"))
	require.NoError(t, err)
	assert.Equal(t, fs.ModeDir|0o555, info.Mode())
	assert.Equal(t, when, info.ModTime())
	for name, want := range map[string]string{"d/sub/x": "content", "d/l": "content", "d/h": "content", "e": "", "no/dir/entry": "1"} {
		data, err := os.ReadFile(filepath.Join(in, name))
		require.NoError(t, err)
		assert.Equal(t, want, string(data), name)
	}
}

// TestExtractReturns unpacks into a directory that it has left before.
func TestExtractReturns(t *testing.T) {
	in, err := extract(t, archive(t, file("a/b/x", "1"), file("c/y", "2"), file("a/b/z", "3")), lax)
	require.NoError(t, err)
	data, err := os.ReadFile(filepath.Join(in, "a", "b", "z"))
	require.NoError(t, err)
	assert.Equal(t, "3", string(data))
}

func TestExtractReplaces(t *testing.T) {
	in, err := extract(t, archive(t, file("a", "old"), file("a", "new"), symlink("l", "a"), file("l", "file")), lax)
	require.NoError(t, err)
	data, err := os.ReadFile(filepath.Join(in, "a"))
	require.NoError(t, err)
	assert.Equal(t, "new", string(data), "the file that replaced the link did not change the link's target")
}

// TestExtractUnwritable: an entry that can't be written because of the destination is an
// error. With Unwritable, that entry is reported and all others are unpacked.
func TestExtractUnwritable(t *testing.T) {
	for name, row := range map[string]struct {
		entries []entry
		want    error
	}{
		"a file over a directory":      {[]entry{file("d/y", ""), file("d", "x")}, fs.ErrExist},
		"a link over a directory":      {[]entry{file("d/y", ""), symlink("d", "x")}, fs.ErrExist},
		"a hard link over a directory": {[]entry{file("x", ""), file("d/y", ""), hardlink("d", "x")}, fs.ErrExist},
		"a directory below a file":     {[]entry{file("x", ""), file("x/d", "x")}, fs.ErrExist},
		"through a link":               {[]entry{symlink("l", "."), file("l/x", "x")}, ErrUnsafe},
		"a hard link to nothing":       {[]entry{hardlink("l", "x")}, fs.ErrNotExist},
		"a long name":                  {[]entry{file(strings.Repeat("n", 256), "x")}, syscall.ENAMETOOLONG},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := extract(t, archive(t, row.entries...), lax)
			require.ErrorIs(t, err, row.want)
			var named []string
			opts := lax
			opts.Unwritable = func(name string, err error) {
				named = append(named, name)
				assert.ErrorIs(t, err, row.want)
			}
			in, err := extract(t, archive(t, append(row.entries, file("z", "x"))...), opts)
			require.NoError(t, err)
			assert.FileExists(t, filepath.Join(in, "z"))
			assert.Equal(t, []string{row.entries[len(row.entries)-1].Name}, named)
		})
	}
	// An error of the stream ends it, whatever it matches.
	opts := lax
	opts.Unwritable = func(string, error) {}
	part := archive(t, file("a", strings.Repeat("x", 2000)), file("z", "x")).Bytes()[:1024]
	_, err := extract(t, io.MultiReader(bytes.NewReader(part), iotest.ErrReader(fs.ErrPermission)), opts)
	assert.ErrorIs(t, err, fs.ErrPermission)
}

func TestExtractRefuses(t *testing.T) {
	for name, entries := range map[string][]entry{
		"parent":                 {file("../evil", "x")},
		"parent inside":          {file("a/../../evil", "x")},
		"parent that comes back": {file("a/../b", "x")},
		"absolute":               {file("/tmp/evil", "x")},
		"empty":                  {file("", "x")},
		"the directory itself":   {file(".", "x")},
		"long":                   {file(strings.Repeat("a/", 3000)+"x", "x")},
		"parent directory":       {dir("..", 0o777)},
		"empty link":             {entry{tar.Header{Name: "l", Typeflag: tar.TypeSymlink, Linkname: ""}, ""}},
		"write through a link":   {dir("d", 0o755), symlink("l", "d"), file("l/x", "x")},
		"mkdir through a link":   {dir("d", 0o755), symlink("l", "d"), dir("l/x", 0o755)},
		"hard link out":          {hardlink("l", "../../etc/passwd")},
		"absolute hard link":     {hardlink("l", "/etc/passwd")},
		"hard link to a link":    {symlink("s", "x"), hardlink("l", "s")},
		"unknown":                {entry{tar.Header{Name: "dev", Typeflag: 'Z'}, ""}},
	} {
		t.Run(name, func(t *testing.T) {
			in, err := extract(t, archive(t, entries...), lax)
			require.ErrorIs(t, err, ErrUnsafe)
			require.NoError(t, filepath.WalkDir(in, func(_ string, d fs.DirEntry, err error) error {
				if err == nil && d.Type().IsRegular() {
					t.Error("a file was written:", d.Name())
				}
				return err
			}))
		})
	}
}

// TestExtractLeavesOut: entries of kinds that are not unpacked are reported, and the others
// arrive.
func TestExtractLeavesOut(t *testing.T) {
	device := func(kind byte) entry { return entry{tar.Header{Name: "d/x", Typeflag: kind}, ""} }
	for name, row := range map[string]struct {
		entry   entry
		leftOut string
	}{
		"link out":             {symlink("d/x", "../../evil"), "d/x"},
		"link out by a detour": {symlink("./d//x", "../d/../../evil"), "d/x"},
		"link out by a link":   {symlink("d/x", "here/../evil"), "d/x"},
		"link out by a name":   {symlink("d/x", "s/../victim"), "d/x"},
		"absolute link":        {symlink("d/x", "/etc/passwd"), "d/x"},
		"beside the base":      {symlink("d/x", "/the/based"), "d/x"},
		"out of the base":      {symlink("d/x", "/the/base/../etc"), "d/x"},
		"out of the base late": {symlink("d/x", "/the/base/d/s/../../x"), "d/x"},
		"block device":         {device(tar.TypeBlock), "d/x"},
		"character device":     {device(tar.TypeChar), "d/x"},
		"pipe":                 {device(tar.TypeFifo), "d/x"},
		"in the base":          {symlink("d/x", "/the/base/a"), ""},
		"the base":             {symlink("d/x", "/the/base"), ""},
		"the base with /":      {symlink("d/x", "/the/base/"), ""},
		"inside":               {symlink("d/x", "../a"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			var leftOut []string
			opts := lax
			opts.Base, opts.LeftOut = "/the/base", func(name string) { leftOut = append(leftOut, name) }
			in, err := extract(t, archive(t, file("a", "x"), dir("d", 0o755), symlink("d/s", ".."), symlink("d/here", "."), row.entry, file("z", "x")), opts)
			require.NoError(t, err)
			assert.FileExists(t, filepath.Join(in, "z"))
			_, there := os.Lstat(filepath.Join(in, "d", "x"))
			if row.leftOut != "" {
				assert.Equal(t, []string{row.leftOut}, leftOut)
				assert.ErrorIs(t, there, fs.ErrNotExist)
				return
			}
			assert.Empty(t, leftOut)
			to, err := filepath.EvalSymlinks(filepath.Join(in, "d", "x"))
			require.NoError(t, err)
			whole, err := filepath.EvalSymlinks(in)
			require.NoError(t, err)
			assert.True(t, strings.HasPrefix(to, whole), to)
		})
	}
}

// TestOpenFollowsNoLink: a directory that a link replaces at the moment of entering is not
// followed.
func TestOpenFollowsNoLink(t *testing.T) {
	in := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(in, "d"), 0o755))
	require.NoError(t, os.Symlink("d", filepath.Join(in, "l")))
	root, err := os.OpenRoot(in)
	require.NoError(t, err)
	defer root.Close()
	x := &extractor{openDirs: []openDir{{dir: root}}}
	require.ErrorIs(t, x.open("l"), ErrUnsafe)
	require.Len(t, x.openDirs, 1)
	require.NoError(t, x.open("d"))
	require.NoError(t, x.current().dir.Close())
}

// TestExtractLinksOfTheUser: links that are already in the directory may lead
// out of it.
func TestExtractLinksOfTheUser(t *testing.T) {
	for name, entries := range map[string][]entry{
		"a file in a linked directory":  {file("dir/evil", "x")},
		"a directory over the link":     {dir("dir", 0o777), file("dir/evil", "x")},
		"a file over a link":            {file("file", "evil")},
		"a hard link to a link":         {hardlink("h", "file"), file("h", "evil")},
		"a hard link through a link":    {hardlink("h", "dir/keep"), file("h", "evil")},
		"a link in a linked directory":  {symlink("dir/evil", "keep")},
		"permissions through a link":    {dir("dir/", 0o777)},
		"a directory below the link":    {dir("dir/evil", 0o777)},
		"a hard link into a linked one": {file("f", "x"), hardlink("dir/evil", "f")},
	} {
		base := t.TempDir()
		in, victim := filepath.Join(base, "in"), filepath.Join(base, "victim")
		require.NoError(t, os.Mkdir(in, 0o755))
		require.NoError(t, os.Mkdir(victim, 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(victim, "keep"), []byte("original"), 0o600))
		require.NoError(t, os.Symlink("../victim", filepath.Join(in, "dir")))
		require.NoError(t, os.Symlink("../victim/keep", filepath.Join(in, "file")))
		root, err := os.OpenRoot(in)
		require.NoError(t, err)
		_ = unpack(t.Context(), archive(t, entries...), root, lax)
		root.Close()
		list, err := os.ReadDir(victim)
		require.NoError(t, err)
		assert.Len(t, list, 1, name)
		kept, err := os.ReadFile(filepath.Join(victim, "keep"))
		require.NoError(t, err)
		assert.Equal(t, "original", string(kept), name)
		info, err := os.Stat(victim)
		require.NoError(t, err)
		assert.Equal(t, fs.FileMode(0o700), info.Mode().Perm(), name)
	}
}

// TestExtractDeep: compressed archives of a few hundred bytes do not use up resources.
func TestExtractDeep(t *testing.T) {
	at := func(depth int) (list []entry) {
		for i := range 20 {
			list = append(list, file(strings.Repeat("d/", depth-2)+strconv.Itoa(i)+"/f", ""))
		}
		return list
	}
	// The number of allocations measures the work, on a machine of any speed.
	allocations := func() uint64 {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.Mallocs
	}
	deep := archive(t, at(255)...)
	before := allocations()
	in, err := extract(t, archive(t, at(2000)...), lax)
	assert.ErrorIs(t, err, ErrUnsafe)
	assert.ErrorContains(t, err, "2000 directories deep, more than 255")
	list, err := os.ReadDir(in)
	require.NoError(t, err)
	assert.Empty(t, list)
	_, err = extract(t, archive(t, at(256)...), lax)
	assert.ErrorContains(t, err, "more than 255")
	_, err = extract(t, deep, lax)
	assert.NoError(t, err)
	assert.Less(t, allocations()-before, uint64(15_000)) // 39,000 without the limit

	// Directories that are created for an entry count, and the error names the limit.
	opts := lax
	opts.MaxEntries = 100
	in, err = extract(t, archive(t, file(strings.Repeat("a/", 60)+"f", ""), file(strings.Repeat("b/", 60)+"f", "")), opts)
	assert.ErrorIs(t, err, ErrUnsafe)
	assert.ErrorContains(t, err, "more than 100 entries")
	made := -1
	require.NoError(t, filepath.WalkDir(in, func(string, fs.DirEntry, error) error { made++; return nil }))
	assert.LessOrEqual(t, made, 100)
}

// TestExtractCountsEverything: entries that are not unpacked count.
func TestExtractCountsEverything(t *testing.T) {
	var globals []entry
	for range 11 {
		globals = append(globals, entry{tar.Header{Typeflag: tar.TypeXGlobalHeader, PAXRecords: map[string]string{"comment": "x"}, Format: tar.FormatPAX}, ""})
	}
	_, err := extract(t, archive(t, globals...), Options{MaxEntries: 10, MaxBytes: 10})
	assert.ErrorContains(t, err, "more than 10 entries")
	none := func(string, bool) bool { return false }
	skipped := archive(t, file("a", strings.Repeat("x", 600)), file("b", strings.Repeat("x", 600)))
	_, err = extract(t, skipped, Options{MaxEntries: 10, MaxBytes: 1000, Keep: none})
	assert.ErrorContains(t, err, "more than 1000 bytes")
}

// TestExtractHeedsTheContext: unpack ends with its context, even within an entry.
func TestExtractHeedsTheContext(t *testing.T) {
	root, err := os.OpenRoot(t.TempDir())
	require.NoError(t, err)
	defer root.Close()
	ctx, cancel := context.WithCancelCause(t.Context())
	x := &extractor{opts: lax, openDirs: []openDir{{name: ".", dir: root}}}
	gone := errors.New("the user went home")
	cancel(gone)
	_, err = x.enter(ctx, "a/b/c")
	assert.ErrorIs(t, err, gone)
	assert.NoError(t, x.close())
}

// TestStrange: isWindowsSpecial finds names and targets that mean something else to
// Windows.
func TestStrange(t *testing.T) {
	for _, s := range []string{
		`..\..\x`, `..\x`, `a\..\..\..\x`, `C:x`, `\x`, `\\host\share\x`, `C:\x`, `sub\..\..`, `a:b`, `file:stream`,
		"trail.", "trail ", "a./b", "a /b", "a. ", "...", "a*b", "a?", `"a"`, "a<b", "a>b", "a|b", "a\nb",
	} {
		assert.True(t, isWindowsSpecial(s), s)
	}
	for _, s := range []string{"a", "a/b", "../a", "./a", "a.b", ".a", "a b", ".", ".."} {
		assert.False(t, isWindowsSpecial(s), s)
	}
}

// OutsideLinks permits links that lead out, but nothing is written through them.
func TestExtractOutsideLinks(t *testing.T) {
	outside := t.TempDir()
	opts := lax
	opts.OutsideLinks = true
	in, err := extract(t, archive(t, symlink("l", outside)), opts)
	require.NoError(t, err)
	target, err := os.Readlink(filepath.Join(in, "l"))
	require.NoError(t, err)
	assert.Equal(t, outside, target)

	for _, through := range []entry{file("l/x", "x"), dir("l/x", 0o755), symlink("l/x", "y")} {
		_, err = extract(t, archive(t, symlink("l", outside), through), opts)
		assert.ErrorIs(t, err, ErrUnsafe)
	}
	_, err = extract(t, archive(t, symlink("l", outside), dir("l", 0o755), file("l/x", "x")), opts)
	assert.NoError(t, err, "the directory takes the place of the link")
	list, err := os.ReadDir(outside)
	require.NoError(t, err)
	assert.Empty(t, list)
}

func TestExtractEntryLimit(t *testing.T) {
	// The same directory a million times is created once.
	pr, pw := io.Pipe()
	go func() {
		w := tar.NewWriter(pw)
		for range 1_000_000 {
			if w.WriteHeader(&tar.Header{Name: "d", Typeflag: tar.TypeDir, Mode: 0o755}) != nil {
				return
			}
		}
		pw.CloseWithError(w.Close())
	}()
	_, err := extract(t, pr, Options{MaxEntries: 10_000, MaxBytes: 1})
	pr.Close()
	assert.ErrorIs(t, err, ErrUnsafe)
	assert.ErrorContains(t, err, "more than 10000 entries")
}

// zeros returns an archive of one sparse file of that size.
func zeros(t *testing.T, size int64) io.Reader {
	t.Helper()
	pr, pw := io.Pipe()
	t.Cleanup(func() { pr.Close() })
	go func() {
		w := tar.NewWriter(pw)
		err := w.WriteHeader(&tar.Header{Name: "hole", Typeflag: tar.TypeReg, Mode: 0o644, Size: size})
		block := make([]byte, 1<<20)
		for left := size; err == nil && left > 0; left -= int64(len(block)) {
			_, err = w.Write(block[:min(int64(len(block)), left)])
		}
		pw.CloseWithError(errors.Join(err, w.Close()))
	}()
	return pr
}

func TestExtractCut(t *testing.T) {
	whole := archive(t, file("a", strings.Repeat("a", 5000)), file("b", strings.Repeat("b", 5000))).Bytes()
	for n := 0; n < len(whole)-1024; n += 97 {
		in, _ := extract(t, bytes.NewReader(whole[:n]), lax)
		list, err := os.ReadDir(in)
		require.NoError(t, err)
		for _, d := range list {
			info, err := d.Info()
			require.NoError(t, err)
			assert.EqualValues(t, 5000, info.Size(), "%s after %d bytes", d.Name(), n)
		}
	}
}

func TestExtractTrailer(t *testing.T) {
	_, err := extract(t, io.MultiReader(archive(t, file("a", "")), zeros(t, 1<<40)), lax)
	assert.ErrorIs(t, err, ErrUnsafe)
}

func TestExtractCancelled(t *testing.T) {
	root, err := os.OpenRoot(t.TempDir())
	require.NoError(t, err)
	defer root.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	assert.ErrorIs(t, unpack(ctx, zeros(t, 1<<30), root, lax), context.Canceled)
}

func FuzzName(f *testing.F) {
	for _, s := range []string{"a", "./a/b/", "../a", "a/../b", "/a", "", ".", "a\x00b", "a//b", "a/./b", `a\b`, "\xff", "..a", "a/.."} {
		f.Add(s, "target")
		f.Add("l", s)
	}
	f.Fuzz(func(t *testing.T, name, target string) {
		clean, err := Clean(name)
		if err == nil && !filepath.IsLocal(filepath.FromSlash(clean)) {
			t.Fatalf("Clean(%q) = %q", name, clean)
		}
		if err != nil || clean == "." {
			return
		}
		if !Leads(clean, target) {
			joined := filepath.Join(filepath.Dir(filepath.FromSlash(clean)), filepath.FromSlash(target))
			if !filepath.IsLocal(joined) {
				t.Fatalf("%q -> %q leads to %q", name, target, joined)
			}
		}
	})
}

// FuzzExtract unpacks archives of three entries, and checks that nothing was
// written outside.
func FuzzExtract(f *testing.F) {
	f.Add("l", "..", byte('2'), "l/x", "", byte('0'), "l", "x", byte('1'))
	f.Add("a", "", byte('5'), "a/l", "../..", byte('2'), "a/l/x", "", byte('0'))
	f.Add("a/b", "", byte('0'), "a", ".", byte('2'), "a/b", "", byte('5'))
	f.Fuzz(func(t *testing.T, n1, t1 string, k1 byte, n2, t2 string, k2 byte, n3, t3 string, k3 byte) {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		for _, e := range []entry{
			{tar.Header{Name: n1, Linkname: t1, Typeflag: k1, Mode: 0o700}, ""},
			{tar.Header{Name: n2, Linkname: t2, Typeflag: k2, Mode: 0o700}, ""},
			{tar.Header{Name: n3, Linkname: t3, Typeflag: k3, Mode: 0o700}, ""},
		} {
			if w.WriteHeader(&e.Header) != nil {
				return
			}
		}
		w.Close()
		opts := lax
		opts.Unwritable = func(string, error) {} // unpack the entries after a refused one, too
		_, _ = extract(t, &b, opts)
	})
}

// TestShorten: a file whose end in the archive is only padding loses the padding, and
// nothing else changes.
func TestShorten(t *testing.T) {
	when := time.Unix(1_000_000_000, 0)
	log := file("a/b/log", "text\x00\x00\x00")
	log.Mode, log.ModTime = 0o400, when
	b := dir("a/b", 0o555)
	b.ModTime = when
	in, err := extract(t, archive(t, dir("a", 0o755), b, log, file("other", "text\x00\x00"), symlink("link", "other"), symlink("way", "a")), lax)
	require.NoError(t, err)
	require.NoError(t, os.Link(filepath.Join(in, "other"), filepath.Join(in, "same")))
	root, err := os.OpenRoot(in)
	require.NoError(t, err)
	defer root.Close()
	ctx := t.Context()
	less := func(n int64) func(int64) int64 { return func(size int64) int64 { return size - n } }
	require.NoError(t, Shorten(ctx, root, "./a/b/log", less(3), lax))
	for _, name := range []string{"link", "way/b/log", "none", "none/x", "other/x", "a/b", "."} {
		require.NoError(t, Shorten(ctx, root, name, less(1), lax), name)
	}
	require.NoError(t, Shorten(ctx, root, "other", less(7), lax)) // it is shorter
	omit := lax
	omit.Keep = func(string, bool) bool { return false }
	require.NoError(t, Shorten(ctx, root, "other", less(2), omit))
	require.ErrorIs(t, Shorten(ctx, root, "../in/other", less(2), lax), ErrUnsafe)
	require.NoError(t, Shorten(ctx, root, "same", less(2), lax))
	for name, want := range map[string]string{"a/b/log": "text", "other": "text\x00\x00", "same": "text"} {
		got, err := os.ReadFile(filepath.Join(in, name))
		require.NoError(t, err)
		assert.Equal(t, want, string(got), name)
	}
	for name, mode := range map[string]fs.FileMode{"a/b/log": 0o400, "a/b": 0o555 | fs.ModeDir} {
		info, err := os.Lstat(filepath.Join(in, name))
		require.NoError(t, err)
		assert.True(t, when.Equal(info.ModTime()), name)
		if runtime.GOOS != "windows" {
			assert.Equal(t, mode, info.Mode(), name)
		}
	}
	list, err := os.ReadDir(filepath.Join(in, "a/b"))
	require.NoError(t, err)
	assert.Len(t, list, 1)
}

// TestExtractKeeps unpacks only what Keep selects, and reports the permissions of the
// directory itself.
func TestExtractKeeps(t *testing.T) {
	var top fs.FileMode
	opts := lax
	opts.Keep, opts.Top = func(name string, dir bool) bool { return name == "a" && !dir }, &top
	in, err := extract(t, archive(t, dir("./", 0o700), file("a", "x"), file("b", "x"), dir("c", 0o755)), opts)
	require.NoError(t, err)
	list, err := os.ReadDir(in)
	require.NoError(t, err)
	require.Len(t, list, 1)
	assert.Equal(t, "a", list[0].Name())
	assert.Equal(t, fs.FileMode(0o700), top)
}
