//go:build !unix

package local

import (
	"io/fs"
	"syscall"
)

func detached() *syscall.SysProcAttr { return nil }

func mine(fs.FileInfo) bool { return true }
