package box

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/go-vercel/sandbox/sandboxtest/internal/box/backend"
)

// makeOverlay creates the directories of an overlay over the drive's files. Its root gets
// the attributes of the drive's.
func makeOverlay(m backend.Mount) error {
	if err := backend.MkdirAll(m.Upper(), 0o711); err != nil {
		return err
	}
	info, err := os.Stat(m.Lower)
	if err != nil {
		return err
	}
	st := info.Sys().(*syscall.Stat_t)
	if os.Geteuid() == 0 {
		if err := os.Chown(m.Upper(), int(st.Uid), int(st.Gid)); err != nil {
			return err
		}
	}
	return os.Chmod(m.Upper(), info.Mode().Perm())
}

// copyOwners gives the files of a copied tree the owners of the originals.
func copyOwners(from, to string) error {
	return filepath.WalkDir(to, func(name string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		sub, err := filepath.Rel(to, name)
		if err != nil {
			return err
		}
		info, err := os.Lstat(filepath.Join(from, sub))
		if errors.Is(err, fs.ErrNotExist) {
			return nil // a sandbox has removed it
		}
		if err != nil {
			return err
		}
		st := info.Sys().(*syscall.Stat_t)
		if err := os.Lchown(name, int(st.Uid), int(st.Gid)); err != nil || info.Mode()&fs.ModeSymlink != 0 {
			return err
		}
		return backend.CopyStamps(filepath.Join(from, sub), name, info) // again, because a change of the owner clears some bits
	})
}
