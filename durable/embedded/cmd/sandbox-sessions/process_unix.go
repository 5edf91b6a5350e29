//go:build unix

package main

import "syscall"

// ofItsOwn keeps the signals of a terminal from a child.
func ofItsOwn() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }
