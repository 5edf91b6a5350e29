//go:build unix

package testmain

import "syscall"

func setUmask(mask int) { syscall.Umask(mask) }
