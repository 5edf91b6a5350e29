package sandbox

import (
	"encoding/base64"
	"io"
	"io/fs"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func parseList(s string, size int) (names []string, infos []*fileInfo, err error) {
	p := &listParser{emit: func(i *fileInfo) { names, infos = append(names, i.name), append(infos, i) }}
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
		assert.Equal(t, time.Unix(1700000000, 123456789), infos[0].ModTime())
		assert.Equal(t, int64(5), infos[0].Size())
		assert.Equal(t, fs.ModeDir|fs.ModeSetgid|0o755, infos[4].Mode())
		assert.Equal(t, fs.ModeIrregular, infos[5].Mode())
	}
	for _, bad := range []string{
		head + "cut", head + "\x00", head + "..\x00", head + ".\x00", head + "a/b\x00", "\x00", "a b\x00",
		strings.Replace(head, "644", "9", 1) + "x\x00", strings.Repeat("x", maxListEntry+1),
	} {
		_, _, err := parseList(bad, 1<<20)
		assert.ErrorIs(t, err, errOutput, "%.100q", bad)
	}
}

func FuzzListing(f *testing.F) {
	f.Add("f 644 5 1 2 1.0 1700000000.1 3 1 99 2049 8 a b\x00", 3)
	f.Add("d 755 4096 0 0 1 2 3 2 7 1 8 ..\x00", 1)
	f.Add("\x00\x00", 1)
	f.Fuzz(func(t *testing.T, s string, size int) {
		size = max(1, min(size, 1<<16))
		names, infos, err := parseList(s, size)
		again, _, errAgain := parseList(s, len(s)+1)
		if (err == nil) != (errAgain == nil) {
			t.Fatalf("in pieces of %d: %v, at once: %v", size, err, errAgain)
		}
		if err == nil && !assert.ObjectsAreEqual(names, again) {
			t.Fatalf("in pieces of %d: %q, at once: %q", size, names, again)
		}
		for _, i := range infos {
			if i.name == "" || i.name == "." || i.name == ".." || strings.ContainsAny(i.name, "/\x00") {
				t.Fatalf("name %q", i.name)
			}
		}
	})
}

func TestBase64Writer(t *testing.T) {
	data := strings.Repeat("\xff\x00abc", 100)
	text := base64.StdEncoding.EncodeToString([]byte(data))
	for _, size := range []int{1, 3, 5, 76, 1000} {
		var out strings.Builder
		w := newBase64Writer(&out)
		for s := text; len(s) > 0; {
			n := min(size, len(s))
			_, err := io.WriteString(w, s[:n]+"\n")
			require.NoError(t, err)
			s = s[n:]
		}
		require.NoError(t, w.Close())
		assert.Equal(t, data, out.String())
	}
	w := newBase64Writer(io.Discard)
	_, err := io.WriteString(w, "QUJDR")
	require.NoError(t, err)
	assert.ErrorIs(t, w.Close(), io.ErrUnexpectedEOF)
	_, err = io.WriteString(newBase64Writer(io.Discard), "!!!!")
	assert.ErrorIs(t, err, errOutput)
}
