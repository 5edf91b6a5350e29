package source_test

import (
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/go-vercel/sandbox/cmd/sandbox/internal/source"
)

// TestOfUpload names a file that could not be read, and leaves errors of the
// connection, and of files of the sandbox, as they are.
func TestOfUpload(t *testing.T) {
	t.Parallel()
	file := &fs.PathError{Op: "open", Path: "sub/no", Err: fs.ErrPermission}
	sent := func(err error) error {
		return fmt.Errorf("write files: %w", &url.Error{Op: "Post", URL: "http://api", Err: fmt.Errorf("reading: %w", err)})
	}
	got := source.OfUpload("dir", sent(file))
	assert.EqualError(t, got, "open "+filepath.Join("dir", "sub", "no")+": permission denied")
	assert.ErrorIs(t, got, fs.ErrPermission)
	for _, err := range []error{nil, file, sent(errors.New("connection reset"))} {
		assert.Equal(t, err, source.OfUpload("dir", err))
	}
	assert.EqualError(t, source.Below("dir", file), "open "+filepath.Join("dir", "sub", "no")+": permission denied")
}
