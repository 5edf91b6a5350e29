//go:build !linux

package box

import (
	"errors"
	"os/exec"
	"runtime"
)

// guest is always nil: commands have the rights of this process.
type guest struct{}

const haveGuests = false

// folderThread calls f on an OS thread that nothing else uses meanwhile.
func folderThread(f func()) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	f()
}

func keepPrivileges() error { return nil }

func newGuest() (*guest, error) { return nil, errors.ErrUnsupported }

func (*guest) enters(string) error         { return nil }
func (*guest) become(*exec.Cmd)            {}
func (*guest) do(f func() error) error     { return f() }
func (*guest) own(string) error            { return nil }
func (*guest) ownTerminal(*terminal) error { return nil }
