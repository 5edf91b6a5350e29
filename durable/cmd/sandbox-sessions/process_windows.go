package main

import (
	"os"
	"syscall"
)

// ownSession returns the attributes of a child process that the terminal's signals do not
// reach.
func ownSession() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{CreationFlags: syscall.CREATE_NEW_PROCESS_GROUP}
}

// requestStop asks a process that was started with ownSession to shut down. A process with
// another console can't be asked, so it is killed. Nothing is lost, because it saves each
// change at once.
func requestStop(p *os.Process) error {
	const ctrlBreak = 1
	send := syscall.NewLazyDLL("kernel32.dll").NewProc("GenerateConsoleCtrlEvent")
	if sent, _, _ := send.Call(ctrlBreak, uintptr(p.Pid)); sent != 0 {
		return nil
	}
	return p.Kill()
}
