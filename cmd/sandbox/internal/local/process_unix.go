//go:build unix

package local

import "syscall"

// detached starts a process that no terminal and none of our signals reach.
func detached() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }
