// Package inside is what this program does for itself in a box: it finds programs, and
// reads files that programs of the box may have replaced. It imports little, since
// package sudo starts this program anew for each command: packages that a program
// imports are initialized in the order of their names once theirs are.
package inside

import (
	"errors"
	"io/fs"
	"os"
)

// OpenRegular opens a regular file, which has an end. Neither function may wait.
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

// What a file can be instead of what was asked for.
var (
	ErrIsDir      = errors.New("is a directory")
	ErrNotDir     = errors.New("not a directory")
	ErrNotRegular = errors.New("not a regular file")
)
