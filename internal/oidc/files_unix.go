//go:build unix

package oidc

import (
	"io/fs"
	"os"
	"syscall"
)

// openFlags keep a pipe in the place of a file from waiting for a writer.
const openFlags = os.O_RDONLY | syscall.O_NONBLOCK

// owner is the user that a file belongs to.
func owner(info fs.FileInfo) (uid uint32, known bool) {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, false
	}
	return stat.Uid, true
}

// syncDir makes a rename in a folder last. That the file system can't is no
// reason to fail: the new file is there.
func syncDir(dir string) {
	if d, err := os.Open(dir); err == nil {
		_ = d.Sync()
		_ = d.Close()
	}
}
