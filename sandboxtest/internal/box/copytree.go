package box

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// copyTree copies files, directories and symlinks with modes and times. What
// is neither (sockets, pipes) belongs to processes that are gone.
func copyTree(from, to string) error {
	type stamp struct {
		name string
		info fs.FileInfo
	}
	var dirs []stamp
	err := filepath.WalkDir(from, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		sub, err := filepath.Rel(from, name)
		if err != nil {
			return err
		}
		target := filepath.Join(to, sub)
		info, err := d.Info()
		if err != nil {
			return err
		}
		switch {
		case d.IsDir():
			dirs = append(dirs, stamp{target, info})
			return os.MkdirAll(target, 0o755)
		case info.Mode()&fs.ModeSymlink != 0:
			link, err := os.Readlink(name)
			if err != nil {
				return err
			}
			return os.Symlink(link, target)
		case info.Mode().IsRegular():
			return copyFile(name, target, info)
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, d := range slices.Backward(dirs) {

		if err := errors.Join(os.Chmod(d.name, d.info.Mode().Perm()), os.Chtimes(d.name, d.info.ModTime(), d.info.ModTime())); err != nil {
			return err
		}
	}
	return nil
}

func copyFile(from, to string, info fs.FileInfo) error {
	src, err := os.Open(from)
	if err != nil {
		return err
	}
	defer src.Close()
	dst, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(dst, src) // shares the blocks where the file system can
	err = errors.Join(err, dst.Close(), os.Chmod(to, info.Mode().Perm()))
	if err != nil {
		return err
	}
	return os.Chtimes(to, info.ModTime(), info.ModTime())
}
