package coreutils

import (
	"encoding/base64"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/internal/test/needs"
)

func parseList(s string, size int) (names []string, infos []Stat, err error) {
	p := &listParser{emit: func(e Entry) { names, infos = append(names, e.Name), append(infos, e.Stat) }}
	for len(s) > 0 {
		n := min(size, len(s))
		if _, err := io.WriteString(p, s[:n]); err != nil {
			return names, infos, err
		}
		s = s[n:]
	}
	return names, infos, p.end()
}

func TestListParser(t *testing.T) {
	const head = "f 644 5 1 2 1.0000000000 1700000000.1234567890 3 1 99 2049 8 "
	list := head + "a b\x00" + head + "line\nfeed\x00" + head + "a|f\x00" + head + " \x00" + "d 2755 4096 0 0 1 2 3 2 7 1 8 -rf\x00" + "D 0 0 0 0 0 0 0 0 0 0 0 door\x00"
	for _, size := range []int{1, 2, 7, 1000} {
		names, infos, err := parseList(list, size)
		require.NoError(t, err)
		assert.Equal(t, []string{"a b", "line\nfeed", "a|f", " ", "-rf", "door"}, names)
		assert.Equal(t, Stat{
			Size: 5, RawMode: 0o100644, UID: 1, GID: 2, Links: 1, Inode: 99, Device: 2049, BlockSize: 512, Blocks: 8,
			AccessTime: time.Unix(1, 0), ModTime: time.Unix(1700000000, 123456789), ChangeTime: time.Unix(3, 0),
		}, infos[0])
		assert.Equal(t, fs.ModeDir|fs.ModeSetgid|0o755, FileMode(infos[4].RawMode))
		assert.Equal(t, fs.ModeIrregular, FileMode(infos[5].RawMode))
	}
	for _, bad := range []string{
		head + "cut", head + "\x00", head + "..\x00", head + ".\x00", head + "a/b\x00", "\x00", "a b\x00",
		strings.Replace(head, "644", "9", 1) + "x\x00", strings.Repeat("x", maxListEntry+1),
	} {
		_, _, err := parseList(bad, 1<<20)
		assert.ErrorIs(t, err, ErrOutput, "%.100q", bad)
	}
}

func FuzzListing(f *testing.F) {
	f.Add("f 644 5 1 2 1.0 1700000000.1 3 1 99 2049 8 a b\x00", 3)
	f.Add("d 755 4096 0 0 1 2 3 2 7 1 8 ..\x00", 1)
	f.Add("\x00\x00", 1)
	f.Fuzz(func(t *testing.T, s string, size int) {
		size = max(1, min(size, 1<<16))
		names, _, err := parseList(s, size)
		again, _, errAgain := parseList(s, len(s)+1)
		if (err == nil) != (errAgain == nil) {
			t.Fatalf("in pieces of %d: %v, at once: %v", size, err, errAgain)
		}
		if err == nil && !assert.ObjectsAreEqual(names, again) {
			t.Fatalf("in pieces of %d: %q, at once: %q", size, names, again)
		}
		for _, name := range names {
			if name == "" || name == "." || name == ".." || strings.ContainsAny(name, "/\x00") {
				t.Fatalf("name %q", name)
			}
		}
	})
}

func TestDecoding(t *testing.T) {
	data := strings.Repeat("\xff\x00abc", 100)
	text := base64.StdEncoding.EncodeToString([]byte(data))
	for _, size := range []int{1, 3, 5, 76, 1000} {
		var out strings.Builder
		w, end := decoding(&out)
		for s := text; len(s) > 0; {
			n := min(size, len(s))
			_, err := io.WriteString(w, s[:n]+"\n")
			require.NoError(t, err)
			s = s[n:]
		}
		require.NoError(t, end())
		assert.Equal(t, data, out.String())
	}
	w, end := decoding(io.Discard)
	_, err := io.WriteString(w, "QUJDR")
	require.NoError(t, err)
	err = end()
	assert.ErrorIs(t, err, io.ErrUnexpectedEOF)
	assert.ErrorIs(t, err, ErrOutput)
	w, end = decoding(io.Discard)
	for err = nil; err == nil; { // the error comes at the latest when the earlier input is decoded
		_, err = io.WriteString(w, "!!!!")
	}
	assert.ErrorIs(t, err, ErrOutput, "it ends the command")
	assert.ErrorIs(t, end(), ErrOutput)
}

func TestParseStat(t *testing.T) {
	st, err := parseStat("4294967296|81a4|1000|1001|1700000000.5|1700000000.123456789|1700000002|-|1|99|2049|4096|8")
	require.NoError(t, err)
	assert.Equal(t, &Stat{
		Size: 1 << 32, RawMode: 0o100644, UID: 1000, GID: 1001,
		AccessTime: time.Unix(1700000000, 5e8), ModTime: time.Unix(1700000000, 123456789), ChangeTime: time.Unix(1700000002, 0),
		Links: 1, Inode: 99, Device: 2049, BlockSize: 4096, Blocks: 8,
	}, st)

	for _, bad := range []string{
		"", "1|2|3", "x|81a4|0|0|0|0|0|0|1|1|1|1|1", "-1|81a4|0|0|0|0|0|0|1|1|1|1|1", "1|zz|0|0|0|0|0|0|1|1|1|1|1",
		"1|81a4|-1|0|0|0|0|0|1|1|1|1|1", "1|81a4|0|0|soon|0|0|0|1|1|1|1|1", "1|81a4|0|0|1.x|0|0|0|1|1|1|1|1",
		"1|81a4|0|0|0|0|0|0|1|1|1|1|1|extra",
	} {
		_, err := parseStat(bad)
		assert.ErrorIs(t, err, ErrOutput, bad)
	}
}

func TestFileMode(t *testing.T) {
	for raw, want := range map[uint32]fs.FileMode{
		0x81a4: 0o644,
		0x41ed: fs.ModeDir | 0o755,
		0xa1ff: fs.ModeSymlink | 0o777,
		0x61b0: fs.ModeDevice | 0o660,
		0x2190: fs.ModeDevice | fs.ModeCharDevice | 0o620,
		0x11a4: fs.ModeNamedPipe | 0o644,
		0xc1ed: fs.ModeSocket | 0o755,
		0x89ed: fs.ModeSetuid | 0o755,
		0x85ed: fs.ModeSetgid | 0o755,
		0x43ff: fs.ModeDir | fs.ModeSticky | 0o777,
		0:      fs.ModeIrregular,
	} {
		assert.Equal(t, want, FileMode(raw), "%x", raw)
		assert.Equal(t, raw&0o7777, permBits(want))
	}
}

func FuzzParseStat(f *testing.F) {
	f.Add("42|81a4|1000|1001|1700000000.5|1700000000.125|1700000002|1700000003|1|99|2049|4096|8")
	f.Add("42|81a4|1000|1001|-1.5|1700000001|0|-|1|99|2049|4096|8")
	f.Add("||||||||||||")
	f.Fuzz(func(t *testing.T, s string) {
		st, err := parseStat(s)
		if err != nil {
			return
		}
		if st.Size < 0 || permBits(FileMode(st.RawMode)) != st.RawMode&0o7777 {
			t.Fatalf("%q: %+v", s, st)
		}
	})
}

func TestOperands(t *testing.T) {
	assert.Equal(t, []string{"a", "b"}, Operands("a", "b"))
	assert.Equal(t, []string{"--", "a", "-rf"}, Operands("a", "-rf"))
	assert.Equal(t, []string{"a-"}, Operands("a-"))
}

func TestCarry(t *testing.T) {
	name, args := Carry("rm", []string{"-r", "häs chen"})
	assert.Equal(t, "rm", name)
	assert.Equal(t, []string{"-r", "häs chen"}, args)

	odd := []string{"%s\\0", "\xff", "é\xfe", "it's", `back\slash`, "new\nline", "$HOME", "`id`", "\x01f0", ""}
	name, args = Carry("printf", odd)
	for _, a := range append(args, name) {
		require.Equal(t, strings.ToValidUTF8(a, ""), a, "can be carried by JSON")
	}
	needs.Programs(t, name)
	out, err := exec.Command(name, args...).Output()
	require.NoError(t, err)
	assert.Equal(t, strings.Join(odd[1:], "\x00")+"\x00", string(out))
}

func TestLine(t *testing.T) {
	assert.Equal(t, " a\n", line(" a\n\n"))
	assert.Equal(t, "a ", line("a \n"))
}

func TestErrnoOf(t *testing.T) {
	for message, want := range map[string]syscall.Errno{
		"": 0,
		"rm: cannot remove 'a': No such file or directory\n":                                    syscall.ENOENT,
		"bash: line 1: cd: /home/alice: NO SUCH FILE OR DIRECTORY\n":                            syscall.ENOENT,
		"No such file or directory":                                                             syscall.ENOENT,
		"mkdir: cannot create directory: Read-only file system\n":                               syscall.EROFS,
		"rm: cannot remove 'No such file or directory': Permission denied\n":                    syscall.EACCES,
		"rm: cannot remove 'd: File exists': Is a directory\n":                                  syscall.EISDIR,
		"mv: cannot move 'a' to 'b': Directory not empty\n":                                     syscall.ENOTEMPTY,
		"mv: cannot overwrite non-directory 'f' with directory 'd'\n":                           syscall.ENOTDIR,
		"mv: cannot move 'd' to a subdirectory of itself, 'd/e'\n":                              syscall.EINVAL,
		"cp: -r not specified; omitting directory 'd'\n":                                        syscall.EISDIR,
		"rm: cannot remove 'x/a': Permission denied\nrm: cannot remove 'x/b': Is a directory\n": syscall.EACCES,
		"find: warning\nfind: 'x': Too many levels of symbolic links":                           syscall.ELOOP,
		"rm: kann 'a' nicht entfernen: Datei oder Verzeichnis nicht gefunden\n":                 0,
		"touch: cannot touch 'x': No space left on device":                                      syscall.ENOSPC,
		"error creating directory: /a: file exists":                                             syscall.EEXIST,
		"dd: invalid argument 'nocreat' to 'conv'\n":                                            syscall.ENOTSUP,
		"find: unrecognized: -ignore_readdir_race\n":                                            syscall.ENOTSUP,
		"rm: invalid option -- 'd'\nBusyBox v1.36.1 multi-call binary.\n":                       syscall.ENOTSUP,
		"rm: cannot remove 'BusyBox v1': Permission denied\n":                                   syscall.EACCES,
	} {
		assert.Equal(t, want, Errno(message), message)
	}
}

// TestTreeLimit: if a tree has more entries than the limit, Tree omits directories that
// were not listed completely.
func TestTreeLimit(t *testing.T) {
	t.Parallel()
	needs.GNU(t)
	dir := t.TempDir()
	for _, sub := range []string{"a/d", "b/d", "c/d"} {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, sub), 0o700))
		for i := range 3 {
			require.NoError(t, os.WriteFile(filepath.Join(dir, sub, strconv.Itoa(i)), nil, 0o600))
		}
	}
	const all = 1 + 3*2 + 3*3
	for _, limit := range []int{2, 4, 9, all, all + 1} {
		top, lists, err := local(t, dir).Tree(t.Context(), ".", limit)
		require.NoError(t, err)
		assert.NotNil(t, top)
		for name, list := range lists {
			want, err := os.ReadDir(filepath.Join(dir, name))
			require.NoError(t, err)
			assert.Len(t, list, len(want), "%q, %d entries", name, limit)
		}
		assert.Equal(t, limit > all, len(lists) == 7, "%d entries", limit)
	}
}
