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

// guest is the user nobody. If this process is root, sandboxes in folder mode have a guest:
// their commands, and the emulator's own work on their files, have its rights. A nil guest
// stands for the user of this process.
type guest struct{ uid, gid int }

// HaveGuests says whether a process of root can temporarily act as another user.
const HaveGuests = true

// NewGuest returns the machine's user nobody, or one with the usual ID of nobody.
func NewGuest() (*guest, error) {
	g := guest{65534, 65534}
	if u, err := user.Lookup("nobody"); err == nil {
		uid, err := strconv.Atoi(u.Uid)
		gid, gerr := strconv.Atoi(u.Gid)
		if err := errors.Join(err, gerr); err != nil {
			return nil, err
		}
		g = guest{uid, gid}
	}
	if g.uid == 0 || g.gid == 0 {
		return nil, errors.New("the user nobody has the rights of root")
	}
	return &g, nil
}

// Enters checks whether commands of the guest can work in a directory. It checks only once
// in this process that it can start a command as the guest, because that takes longer than
// the rest of a host's start.
func (g *guest) Enters(dir string) error {
	if _, ok := startedGuests.Load(*g); !ok {
		cmd := exec.Command("/bin/sh", "-c", ":")
		cmd.Dir = "/"
		backend.NewSession(cmd, false)
		g.setUser(cmd)
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("run commands as user %d: %w", g.uid, err)
		}
		startedGuests.Store(*g, nil)
	}
	err := g.do(func() error {
		_, err := os.Stat(dir + "/.") // like a working directory, this needs the right to search dir
		return err
	})
	if err != nil {
		return fmt.Errorf("work in %s as user %d: %w", dir, g.uid, err)
	}
	return nil
}

// startedGuests contains the guests for which this process has started a command.
var startedGuests sync.Map

// setUser makes a command run as the guest.
func (g *guest) setUser(cmd *exec.Cmd) {
	if g != nil {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(g.uid), Gid: uint32(g.gid)}
	}
}

// do calls f with the guest's rights on files.
func (g *guest) do(f func() error) error {
	if g == nil {
		return f()
	}
	return backend.AsUser(g.uid, g.gid, f)
}

// startThread calls a function that starts a command. It uses a thread that ends
// afterwards, because the start changes the thread.
var startThread = backend.UseUpThread

// forbidPrivileges keeps programs that the calling thread starts from becoming another
// user, for example with the machine's sudo. Commands in folder mode must not change the
// machine.
func forbidPrivileges() error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	// Ignore errors: the machine may forbid both calls, and folder mode promises neither.
	_, _ = backend.SeparateThread(), backend.RefuseCalls()
	return nil
}

// giveTree makes the guest the owner of a tree. The guest must not be able to reach the
// tree yet. It could otherwise put another file in the place of one, and be given that
// file.
func (g *guest) giveTree(tree string) error {
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

// giveTerminal lets the guest open a terminal by its name.
func (g *guest) giveTerminal(t *backend.Terminal) error {
	if g == nil {
		return nil
	}
	return t.Slave.Chown(g.uid, -1)
}
