package main

import "syscall"

// ofItsOwn keeps the signals of a terminal from a child.
func ofItsOwn() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{CreationFlags: syscall.CREATE_NEW_PROCESS_GROUP}
}
