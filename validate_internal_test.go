package sandbox

import (
	"path"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestFilePath(t *testing.T) {
	for _, tc := range []struct{ cwd, name, want string }{
		{"/srv/app", "a.txt", "srv/app/a.txt"},
		{"/srv/app", "/etc/c", "etc/c"},
		{"/srv/app", "../up.txt", "srv/up.txt"},
		{"/srv/app", "../../../../top.txt", "top.txt"},
		{"/srv/app", "./x//y/./z/../w", "srv/app/x/y/w"},
		{"/srv/app", "/abs//d/../e/", "abs/e"},
		{"/srv/app", "trail/", "srv/app/trail"},
		{"", "a", "vercel/sandbox/a"},
		{"/", "a", "a"},
		{"/home/alice", "~", "home/alice/~"},
		{"/srv/app", "/srv/application", "srv/application"},
	} {
		abs, err := filePath(tc.cwd, tc.name)
		require.NoError(t, err, tc.name)
		assert.Equal(t, tc.want, entryName(abs), tc.name)
	}
}

func TestFilePathRefusesDirectories(t *testing.T) {
	for _, tc := range []struct{ cwd, name string }{
		{"/srv/app", ""},
		{"/srv/app", "."},
		{"/srv/app", "./"},
		{"/srv/app", "x/.."},
		{"/srv/app", "/"},
		{"/srv/app", "//"},
		{"/srv/app", ".."},
		{"/srv/app", "../.."},
		{"/srv/app", "/srv/app"},
		{"/srv/app", "/srv"},
		{"", "."},
		{"relative", "a"},
		{"/srv/app", "a\x00b"},
		{"/srv\x00app", "a"},
	} {
		_, err := filePath(tc.cwd, tc.name)
		assert.ErrorIs(t, err, ErrInvalid, "%q in %q", tc.name, tc.cwd)
	}
}

// TestCommandIDCharacters: each kind of character that an ID may have, and its
// neighbors in ASCII.
func TestCommandIDCharacters(t *testing.T) {
	for _, id := range []string{"", "a", "z", "A", "Z", "0", "9", "_", "-", "job_1-B", strings.Repeat("x", 64)} {
		assert.NoError(t, checkCommandID(id), "%q", id)
	}
	for _, id := range []string{"`", "{", "@", "[", "/", ":", ".", " ", "a/b", "..", "a?b", "a#", "a%2f", "é", "a\n", "\x00", strings.Repeat("x", 65)} {
		assert.ErrorIs(t, checkCommandID(id), ErrInvalid, "%q", id)
	}
}

func FuzzFilePath(f *testing.F) {
	for _, s := range []string{"a", "../a", "/", "", "a/../../b", "\xff", "a\x00", "//x//", strings.Repeat("../", 100) + "etc"} {
		f.Add("/vercel/sandbox", s)
		f.Add("/", s)
		f.Add("", s)
		f.Add("x", s)
	}
	f.Add("/\x00", "0")
	f.Fuzz(func(t *testing.T, cwd, name string) {
		abs, err := filePath(cwd, name)
		if err != nil {
			return
		}
		entry := entryName(abs)
		if !path.IsAbs(abs) || path.Clean(abs) != abs || entry == "" || entry[0] == '/' || strings.Contains(entry, "\x00") {
			t.Fatalf("filePath(%q, %q) = %q", cwd, name, abs)
		}
		for elem := range strings.SplitSeq(entry, "/") {
			if elem == ".." || elem == "." || elem == "" {
				t.Fatalf("filePath(%q, %q) = %q", cwd, name, abs)
			}
		}
		if path.IsAbs(cwd) && isWithin(path.Clean(cwd), abs) {
			t.Fatalf("filePath(%q, %q) = %q, which is a directory", cwd, name, abs)
		}
	})
}
