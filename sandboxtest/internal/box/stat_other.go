//go:build !unix

package box

import (
	"io/fs"
	"time"
)

// mine is true: temporary directories are in a folder of the user's own.
func mine(fs.FileInfo) bool { return true }

// storedSize is the length of a file.
func storedSize(info fs.FileInfo) int64 { return info.Size() }

// severalNames is false: there is no way to tell.
func severalNames(fs.FileInfo) (fileID, bool) { return fileID{}, false }

// makePipe does nothing: files can't be pipes here.
func makePipe(string) error { return nil }

// setLinkTime does nothing: there is no call for it.
func setLinkTime(string, time.Time) error { return nil }
