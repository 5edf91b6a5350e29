//go:build !unix

package box

import "io/fs"

// mine is true: temporary directories are in a folder of the user's own.
func mine(fs.FileInfo) bool { return true }
