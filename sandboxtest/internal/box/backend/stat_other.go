//go:build !unix

package backend

import (
	"io/fs"
	"time"
)

// IsOurs is true: temporary directories are in a folder of the user's own.
func IsOurs(fs.FileInfo) bool { return true }

// StoredSize is the length of a file.
func StoredSize(info fs.FileInfo) int64 { return info.Size() }

// severalNames is false: there is no way to tell.
func severalNames(fs.FileInfo) (fileID, bool) { return fileID{}, false }

// makePipe does nothing: files can't be pipes here.
func makePipe(string) error { return nil }

// setLinkTime does nothing: there is no call for it.
func setLinkTime(string, time.Time) error { return nil }
