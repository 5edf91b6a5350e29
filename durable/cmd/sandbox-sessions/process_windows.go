package main

import (
	"os"
	"syscall"
)

// ofItsOwn keeps the signals of a terminal from a child.
func ofItsOwn() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{CreationFlags: syscall.CREATE_NEW_PROCESS_GROUP}
}

// askToEnd asks a process that was started by ofItsOwn to end in order. One that
// has another console can't be asked, and is ended: it keeps its state at each
// moment.
func askToEnd(p *os.Process) error {
	const ctrlBreak = 1
	send := syscall.NewLazyDLL("kernel32.dll").NewProc("GenerateConsoleCtrlEvent")
	if sent, _, _ := send.Call(ctrlBreak, uintptr(p.Pid)); sent != 0 {
		return nil
	}
	return p.Kill()
}
