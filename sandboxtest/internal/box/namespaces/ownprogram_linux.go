package namespaces

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/go-vercel/sandbox/sandboxtest/internal/box/sudo"
)

// bindSelf binds this program to n.self, from which it is bound into sandboxes. If the
// program's file no longer exists, sandboxes have no sudo.
func (n *Backend) bindSelf() error {
	// Use the name, because the link leads to another mount namespace.
	program, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return err
	}
	n.self = n.mounts + "/exe"
	if err := writeFile(n.self, "", 0o755); err != nil {
		return err
	}
	if err := (mountPoint{source: program, target: n.self, flags: unix.MS_BIND}).mount(); err != nil {
		n.log.Info("sandboxes have only the host's sudo, if it has one", "error", err)
	}
	return nil
}

// showSelf binds this program into a sandbox, unless the sandbox has removed the mount
// point.
func (n *Backend) showSelf(root string) error {
	target := root + sudo.Program
	if info, err := os.Lstat(target); err != nil || !info.Mode().IsRegular() {
		return nil
	}
	err := bindReadOnly(n.self, target)
	if errors.Is(err, fs.ErrNotExist) {
		// An upgrade has replaced the program, and a deleted file can't be bound again.
		if err = n.copySelf(); err == nil {
			err = bindReadOnly(n.self, target)
		}
	}
	if err != nil {
		return fmt.Errorf("show sudo: %w", err)
	}
	return nil
}

// copySelf replaces the bound program by a copy of it.
func (n *Backend) copySelf() error {
	if err := unix.Unmount(n.self, unix.MNT_DETACH); err != nil {
		return err
	}
	program, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		return err
	}
	return os.WriteFile(n.self, program, 0o755)
}
