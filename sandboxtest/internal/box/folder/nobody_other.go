//go:build !linux

package folder

import (
	"errors"
	"os/exec"
	"runtime"

	"github.com/go-vercel/sandbox/sandboxtest/internal/box/backend"
)

// guest is always nil: commands have the rights of this process.
type guest struct{}

// HaveGuests says whether a process of root can temporarily act as another user.
const HaveGuests = false

// startThread calls f on an OS thread that nothing else uses during the call.
func startThread(f func()) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	f()
}

func forbidPrivileges() error { return nil }

// NewGuest fails.
func NewGuest() (*guest, error) { return nil, errors.ErrUnsupported }

func (*guest) Enters(string) error                  { return nil }
func (*guest) setUser(*exec.Cmd)                    {}
func (*guest) do(f func() error) error              { return f() }
func (*guest) giveTree(string) error                { return nil }
func (*guest) giveTerminal(*backend.Terminal) error { return nil }
