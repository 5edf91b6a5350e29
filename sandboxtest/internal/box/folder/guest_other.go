//go:build !linux

package folder

import (
	"errors"
	"os/exec"
	"runtime"

	"github.com/go-vercel/sandbox/sandboxtest/internal/box/backend"
)

// Guest is always nil: commands have the rights of this process.
type Guest struct{}

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
func NewGuest() (*Guest, error) { return nil, errors.ErrUnsupported }

func (*Guest) Enters(string) error                  { return nil }
func (*Guest) setUser(*exec.Cmd)                    {}
func (*Guest) do(f func() error) error              { return f() }
func (*Guest) giveTree(string) error                { return nil }
func (*Guest) giveTerminal(*backend.Terminal) error { return nil }
