//go:build unix

package oidc

import (
	"io/fs"
	"os"
	"syscall"
)

// openFlags keep a pipe in place of a file from waiting for a writer.
const openFlags = os.O_RDONLY | syscall.O_NONBLOCK

// owner returns the user that a file belongs to.
func owner(info fs.FileInfo) (uid uint32, known bool) {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, false
	}
	return stat.Uid, true
}

// syncDir makes a rename in a directory durable. If the file system does not
// support that, the new file exists nevertheless.
func syncDir(dir string) {
	if d, err := os.Open(dir); err == nil {
		_ = d.Sync()
		_ = d.Close()
	}
}
