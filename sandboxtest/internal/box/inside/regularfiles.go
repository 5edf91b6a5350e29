// Package inside finds programs in a sandbox, and reads files that programs of the sandbox
// may have replaced. It imports little, because package sudo starts this program for each
// command, and Go initializes all imports of package sudo first.
package inside

import (
	"errors"
	"io/fs"
	"os"
)

// OpenRegular opens a regular file with the given functions, which must not block.
func OpenRegular(name string, stat func(string) (fs.FileInfo, error), open func(string) (*os.File, error)) (*os.File, error) {
	info, err := stat(name)
	if err != nil {
		return nil, err
	}
	if err := regular(name, info); err != nil {
		return nil, err
	}
	file, err := open(name)
	if err != nil {
		return nil, err
	}
	// It may have been replaced since.
	if info, err = file.Stat(); err == nil {
		err = regular(name, info)
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

func regular(name string, info fs.FileInfo) error {
	switch {
	case info.IsDir():
		return &fs.PathError{Op: "read", Path: name, Err: ErrIsDir}
	case !info.Mode().IsRegular():
		return &fs.PathError{Op: "read", Path: name, Err: ErrNotRegular}
	}
	return nil
}

// Errors of files that are not of the requested kind.
var (
	ErrIsDir      = errors.New("is a directory")
	ErrNotDir     = errors.New("not a directory")
	ErrNotRegular = errors.New("not a regular file")
)
