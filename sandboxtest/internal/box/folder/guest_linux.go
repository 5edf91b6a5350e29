package folder

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/go-vercel/sandbox/sandboxtest/internal/box/backend"
)

// Guest is the user of boxes in folder mode if this process is root. Their commands, and
// the machine's own work on their files, have the rights of nobody. A nil guest is this
// process's own user.
type Guest struct{ uid, gid int }

// HaveGuests says whether a process of root can temporarily act as another user.
const HaveGuests = true

// NewGuest returns the machine's user nobody, or one with the usual ID of nobody.
func NewGuest() (*Guest, error) {
	g := Guest{65534, 65534}
	if u, err := user.Lookup("nobody"); err == nil {
		uid, err := strconv.Atoi(u.Uid)
		gid, gerr := strconv.Atoi(u.Gid)
		if err := errors.Join(err, gerr); err != nil {
			return nil, err
		}
		g = Guest{uid, gid}
	}
	if g.uid == 0 || g.gid == 0 {
		return nil, errors.New("nobody is root here")
	}
	return &g, nil
}

// Enters checks whether commands of the guest can work in a directory. Whether this process
// can start commands as the guest at all is checked once: a process takes longer than the
// rest of a host's start.
func (g *Guest) Enters(dir string) error {
	if _, ok := startedGuests.Load(*g); !ok {
		cmd := exec.Command("/bin/sh", "-c", ":")
		cmd.Dir = "/"
		backend.NewSession(cmd, false)
		g.become(cmd)
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("run commands as user %d: %w", g.uid, err)
		}
		startedGuests.Store(*g, nil)
	}
	err := g.do(func() error {
		_, err := os.Stat(dir + "/.") // which needs the right to search dir, as a working directory does
		return err
	})
	if err != nil {
		return fmt.Errorf("work in %s as user %d: %w", dir, g.uid, err)
	}
	return nil
}

// startedGuests has the guests as whom this process has started a command.
var startedGuests sync.Map

// become makes a command run as the guest, after prepare.
func (g *Guest) become(cmd *exec.Cmd) {
	if g != nil {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(g.uid), Gid: uint32(g.gid)}
	}
}

// do calls f with the guest's rights on files.
func (g *Guest) do(f func() error) error {
	if g == nil {
		return f()
	}
	return backend.AsUser(g.uid, g.gid, f)
}

// startThread runs the start of a command in folder mode on a thread that is not used
// again, because the start changes the thread.
var startThread = backend.UseUpThread

// keepPrivileges keeps programs that the calling thread starts from becoming another
// user, for example with the machine's sudo: commands in a folder must not change the
// machine.
func keepPrivileges() error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	// A machine may allow neither. Folder mode promises neither.
	_, _ = backend.SeparateThread(), backend.RefuseCalls()
	return nil
}

// own gives the guest a tree that it can't reach yet: the guest could otherwise swap a
// file, which would then be given away.
func (g *Guest) own(tree string) error {
	if g == nil {
		return nil
	}
	return filepath.WalkDir(tree, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err == nil {
			err = os.Lchown(name, g.uid, g.gid)
		}
		if err != nil || info.Mode()&fs.ModeSymlink != 0 {
			return err
		}
		// Changing the owner clears some bits.
		return os.Chmod(name, info.Mode()&(fs.ModePerm|fs.ModeSetuid|fs.ModeSetgid|fs.ModeSticky))
	})
}

// ownTerminal lets the guest open a terminal by its name.
func (g *Guest) ownTerminal(t *backend.Terminal) error {
	if g == nil {
		return nil
	}
	return t.Slave.Chown(g.uid, -1)
}
