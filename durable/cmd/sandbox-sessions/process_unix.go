//go:build unix

package main

import (
	"os"
	"syscall"
)

// ofItsOwn keeps the signals of a terminal from a child.
func ofItsOwn() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }

// askToEnd asks a process to shut down.
func askToEnd(p *os.Process) error { return p.Signal(os.Interrupt) }
