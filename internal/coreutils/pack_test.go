package coreutils

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/internal/test/needs"
)

// TestPackFaults: PackFaults recognizes tar's messages about files that it can't pack
// unchanged, and no others.
func TestPackFaults(t *testing.T) {
	changed := func(name string, zeros int64) PackFault { return PackFault{Name: name, Zeros: zeros, ReadOnly: -1} }
	gone := func(name string) PackFault { return PackFault{Name: name, Kind: Gone, ReadOnly: -1} }
	socket := PackFault{Name: "./s", Kind: Socket, ReadOnly: -1}
	for _, row := range []struct {
		code   int
		stderr string
		want   []PackFault
		only   bool
	}{
		{1, "tar: ./log: file changed as we read it\n", []PackFault{changed("./log", 0)}, true},
		{1, "tar: .: file changed as we read it\ntar: ./s: socket ignored\n", []PackFault{changed(".", 0), socket}, true},
		{1, "/usr/bin/tar: ./a: File removed before we read it\n", []PackFault{gone("./a")}, true},
		{1, "tar: ./a: File shrank by 1 byte; padding with zeros\n", []PackFault{changed("./a", 1)}, true},
		{1, "tar: ./a\\: File shrank by 2 bytes\\n\\303\\244\\\\: File shrank by 2464448 bytes; padding with zeros\n",
			[]PackFault{changed("./a: File shrank by 2 bytes\nä\\", 2464448)}, true},
		{2, "tar: ./a: Cannot open: Not a directory\ntar: Exiting with failure status due to previous errors\n", []PackFault{gone("./a")}, true},
		{2, "tar: ./a: Cannot open: Permission denied\ntar: ./b: file changed as we read it\n",
			[]PackFault{{Name: "./a", Kind: Unreadable, Errno: syscall.EACCES, ReadOnly: -1}, changed("./b", 0)}, true},
		{2, "tar: ./a: Cannot stat: Something of its own\n", []PackFault{{Name: "./a", Kind: Unreadable, Errno: syscall.EIO, ReadOnly: -1}}, true},
		{2, "tar: ./a: Read error at byte 1024, while reading 512 bytes: Input/output error\ntar: ./b: File shrank by 5 bytes; padding with zeros\n",
			[]PackFault{{Name: "./a", Kind: Unreadable, Errno: syscall.EIO, ReadOnly: 1024}, changed("./b", 5)}, true},
		{0, "", nil, false},
		{1, "", nil, false},
		{1, "tar: ./s: socket ignored\n", []PackFault{socket}, false},
		{1, "tar: ./b: file changed as we read it\ngzip: stdout: No space left on device\n", []PackFault{changed("./b", 0)}, false},
		{2, "tar: -: Cannot write: No space left on device\n", nil, false},
		{2, "tar: .: Cannot open: No such file or directory\n", nil, false},
		{2, "tar: .: Cannot open: Permission denied\n", nil, false},
		{1, "tar: ./a: File shrank by -1 bytes; padding with zeros\n", nil, false},
		{137, "tar: ./b: file changed as we read it\n", []PackFault{changed("./b", 0)}, false},
		{1, "tar: \\\n", nil, false},
		{1, "tar: \\7: file changed as we read it", []PackFault{changed("7", 0)}, true},
	} {
		got, only := PackFaults(Result{ExitCode: row.code, Stderr: row.stderr})
		assert.Equal(t, row.want, got, row.stderr)
		assert.Equal(t, row.only, only, row.stderr)
	}
}

// TestVanished: a missing directory differs from missing entries, whatever its name is.
func TestVanished(t *testing.T) {
	needs.GNU(t)
	needs.Programs(t, "find")
	dir := t.TempDir()
	run := local(t, dir)
	for _, name := range []string{"none", "no'ne", "no\nne", "ä: No such file or directory", "n/"} {
		_, err := run.List(t.Context(), name)
		assert.ErrorContains(t, err, "no such file", name)
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o600))
	_, err := run.List(t.Context(), "file")
	assert.ErrorContains(t, err, "not a directory")
	for said, want := range map[string]bool{
		"find: 'd/sub': No such file or directory\n":                                        true,
		"find: ‘d/sub’: No such file or directory\nfind: 'd/a\\n: b': Not a directory\n":    true,
		"find: 'd/sub': No such file or directory\nfind: 'd/x': Permission denied\n":        false,
		"find: 'd/sub': No such file or directory\nfind: 'd/': No such file or directory\n": false,
		"find: 'd': No such file or directory\n":                                            false,
		"base64: x: No such file or directory\n":                                            false,
		"find: No such file or directory\n":                                                 false,
		"":                                                                                  false,
	} {
		assert.Equal(t, want, vanished(Result{ExitCode: 1, Stderr: said}, "d"), said)
		assert.False(t, vanished(Result{ExitCode: 137, Stderr: said}, "d"))
	}
}
