//go:build !unix

package local

import "syscall"

func detached() *syscall.SysProcAttr { return nil }
