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
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/go-vercel/sandbox/sandboxtest/internal/box/backend"
)

// Guest is the user of boxes in folder mode where this process is root: their
// commands, and what the machine does to their files for them, have the rights of
// nobody on the machine's. A nil guest is this process's own user.
type Guest struct{ uid, gid int }

// HaveGuests says that a process of root can act as another user for a moment.
const HaveGuests = true

// NewGuest returns the machine's user nobody, or one with its usual number.
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

// Enters tries whether commands of the guest can work in a directory.
func (g *Guest) Enters(dir string) error {
	cmd := exec.Command("/bin/sh", "-c", ":")
	cmd.Dir = dir
	backend.NewSession(cmd, false)
	g.become(cmd)
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("work in %s as user %d: %w", dir, g.uid, err)
	}
	return g.do(func() error {
		_, err := os.Stat(dir)
		return err
	})
}

// become makes a command the guest's, after prepare.
func (g *Guest) become(cmd *exec.Cmd) {
	if g != nil {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(g.uid), Gid: uint32(g.gid)}
	}
}

// Do calls f with the guest's rights on files.
func (g *Guest) do(f func() error) error {
	if g == nil {
		return f()
	}
	return backend.AsUser(g.uid, g.gid, f)
}

// startThread is for starting commands in folder mode, which leaves a mark on
// the thread.
var startThread = backend.UseUpThread

// keepPrivileges keeps what the calling thread starts from becoming another user,
// as by the machine's sudo: nothing in a folder is to change the machine.
func keepPrivileges() error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	// A machine may allow neither, and who works in a folder is promised neither.
	_, _ = backend.SeparateThread(), backend.RefuseCalls()
	return nil
}

// own gives the guest a tree that the guest can't reach yet: a file that changed
// places meanwhile would be given away, too.
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
		// A change of owner clears some bits.
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
