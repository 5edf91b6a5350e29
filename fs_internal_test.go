package sandbox

import (
	"errors"
	"io/fs"
	"syscall"
	"testing"

	"github.com/go-vercel/sandbox/internal/coreutils"
	"github.com/stretchr/testify/assert"
)

// failed returns the error of a failed program.
func failed(exitCode int, stderr string) error {
	return programError(coreutils.NewError("rm", exitCode, stderr))
}

func TestFSErrorIs(t *testing.T) {
	err := error(&fs.PathError{Op: "rm", Path: "x", Err: failed(1, "rm: x: Directory not empty\n")})
	assert.ErrorIs(t, err, syscall.ENOTEMPTY)
	assert.NotErrorIs(t, err, fs.ErrNotExist)
	assert.Equal(t, "rm x: directory not empty", err.Error())
	fe, ok := errors.AsType[*FSError](err)
	assert.True(t, ok)
	assert.Equal(t, "rm: x: Directory not empty\n", fe.Message)

	assert.ErrorIs(t, failed(1, "rm: x: Permission denied"), fs.ErrPermission)
	assert.Equal(t, "something odd", failed(1, "something odd\n").Error())
	assert.Equal(t, "rm ended with exit code 3", failed(3, "").Error())
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
		{"not_found", "Vercel Sandbox not found", true},
		{"not_found", "/vercel/sandbox not found", false},
	} {
		err := missingFile(&APIError{Status: 404, Code: tc.code, Message: tc.message})
		assert.Equal(t, tc.gone, errors.Is(err, ErrNotFound), "%+v", tc)
		assert.Equal(t, !tc.gone, errors.Is(err, fs.ErrNotExist), "%+v", tc)
	}
	err := missingFile(&APIError{Status: 400, Code: "is_directory"})
	assert.ErrorIs(t, err, syscall.EISDIR)
	_, ok := errors.AsType[*APIError](err)
	assert.True(t, ok, "the error still wraps the API's")
}
