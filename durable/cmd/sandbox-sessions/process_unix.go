//go:build unix

package main

import (
	"os"
	"syscall"
)

// ownSession returns the attributes of a child process that the terminal's signals do not
// reach.
func ownSession() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }

// requestStop asks a process to shut down.
func requestStop(p *os.Process) error { return p.Signal(os.Interrupt) }
