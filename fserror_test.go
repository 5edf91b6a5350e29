package sandbox

import (
	"errors"
	"io/fs"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
)

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
	} {
		assert.Equal(t, want, errnoOf(message), message)
	}
}

func TestFSErrorIs(t *testing.T) {
	err := error(&fs.PathError{Op: "rm", Path: "x", Err: newFSError("rm", 1, "rm: x: Directory not empty\n")})
	assert.ErrorIs(t, err, syscall.ENOTEMPTY)
	assert.NotErrorIs(t, err, fs.ErrNotExist)
	assert.Equal(t, "rm x: directory not empty", err.Error())
	fe, ok := errors.AsType[*FSError](err)
	assert.True(t, ok)
	assert.Equal(t, "rm: x: Directory not empty\n", fe.Message)

	assert.ErrorIs(t, newFSError("rm", 1, "rm: x: Permission denied"), fs.ErrPermission)
	assert.Equal(t, "something odd", newFSError("rm", 1, "something odd\n").Error())
	assert.Equal(t, "rm ended with exit code 3", newFSError("rm", 3, "").Error())
}

func TestMissingFile(t *testing.T) {
	for _, tc := range []struct {
		code, message string
		gone          bool
	}{
		{"not_found", "not_found", false},
		{"", "", false},
		{"file_not_found", "", false},
		{"session_not_found", "no such session", true},
		{"sandbox_not_found", "", true},
		{"not_found", "Vercel Sandbox not found.", true},
		{"not_found", "/vercel/sandbox not found", false},
	} {
		err := missingFile(&APIError{Status: 404, Code: tc.code, Message: tc.message})
		assert.Equal(t, tc.gone, errors.Is(err, ErrNotFound), "%+v", tc)
		assert.Equal(t, !tc.gone, errors.Is(err, fs.ErrNotExist), "%+v", tc)
	}
	err := missingFile(&APIError{Status: 400, Code: "is_directory"})
	assert.ErrorIs(t, err, syscall.EISDIR)
	_, ok := errors.AsType[*APIError](err)
	assert.True(t, ok, "the API's error stays within reach")
}
