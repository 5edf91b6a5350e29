//go:build unix

package local

import "syscall"

// detached starts a process that no terminal and no signal of ours reaches.
func detached() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }
