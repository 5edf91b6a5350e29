//go:build unix

package local

import "syscall"

// detached makes a new process independent of this process's terminal and process group, so
// that their signals do not reach it.
func detached() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }
