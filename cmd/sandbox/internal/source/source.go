// Package source names the files of this machine that could not be read.
package source

import (
	"errors"
	"io/fs"
	"net/url"
	"path/filepath"
)

// Below returns an error about a file of a directory with the path that leads to
// it from outside.
func Below(dir string, err error) error {
	if file, ok := errors.AsType[*fs.PathError](err); ok {
		return &fs.PathError{Op: file.Op, Path: filepath.Join(dir, filepath.FromSlash(file.Path)), Err: file.Err}
	}
	return err
}

// OfUpload returns the error of the upload of a directory. If it comes from one of
// the directory's files, it is about that, and not about the request that was
// reading it.
func OfUpload(dir string, err error) error {
	if sent, ok := errors.AsType[*url.Error](err); ok {
		if below := Below(dir, sent.Err); below != sent.Err {
			return below
		}
	}
	return err
}
