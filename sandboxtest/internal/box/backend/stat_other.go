//go:build !unix

package backend

import (
	"io/fs"
	"time"
)

// IsOurs is always true: temporary directories are in a folder of the user.
func IsOurs(fs.FileInfo) bool { return true }

// storedSize returns the length of a file.
func storedSize(info fs.FileInfo) int64 { return info.Size() }

// hardLinkID returns false: this system does not report hard links.
func hardLinkID(fs.FileInfo) (fileID, bool) { return fileID{}, false }

// makePipe does nothing: this system has no named pipes in folders.
func makePipe(string) error { return nil }

// setLinkTime does nothing: this system has no call for it.
func setLinkTime(string, time.Time) error { return nil }
