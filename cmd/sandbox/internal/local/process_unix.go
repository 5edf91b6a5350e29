//go:build unix

package local

import (
	"io/fs"
	"os"
	"syscall"
)

// detached starts a process that no terminal and no signal of ours reaches.
func detached() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }

func mine(info fs.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(stat.Uid) == os.Getuid()
}
