package backend

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
)

// treeCopy is a copy of a tree in progress.
type treeCopy struct {
	from, to string
	dirs     []copiedDir
	links    map[fileID]string // the copies of files that have several names
}

// copiedDir is a directory. Its mode and times are set after its contents.
type copiedDir struct {
	from, to string
	info     fs.FileInfo
}

// fileID identifies a file independently of its names.
type fileID struct{ device, inode uint64 }

// CopyTree copies files, directories, symlinks and pipes with their modes, times, holes
// and hard links, and on Linux their extended attributes as far as the file system and
// this process's rights allow. It omits sockets, because their processes are gone.
func CopyTree(from, to string) error {
	c := &treeCopy{from: from, to: to, links: make(map[fileID]string)}
	if err := filepath.WalkDir(from, c.visit); err != nil {
		return err
	}
	for _, d := range slices.Backward(c.dirs) {
		if err := CopyStamps(d.from, d.to, d.info); err != nil {
			return err
		}
	}
	return nil
}

// MoveTree renames a tree, even to another file system. The tree appears there completely
// or not at all.
func MoveTree(from, to string) error {
	err := os.Rename(from, to)
	if !errors.Is(err, syscall.EXDEV) {
		return err
	}
	made := to + HalfWritten
	if err = CopyTree(from, made); err == nil {
		err = os.Rename(made, to)
	}
	if err != nil {
		return errors.Join(err, RemoveAll(made))
	}
	return RemoveAll(from)
}

func (c *treeCopy) visit(name string, d fs.DirEntry, err error) error {
	if err != nil {
		return err
	}
	sub, err := filepath.Rel(c.from, name)
	if err != nil {
		return err
	}
	target := filepath.Join(c.to, sub)
	info, err := d.Info()
	if err != nil {
		return err
	}
	id, linked := hardLinkID(info)
	linked = linked && !d.IsDir()
	if first := c.links[id]; linked && first != "" {
		return os.Link(first, target)
	}
	switch {
	case d.IsDir():
		c.dirs = append(c.dirs, copiedDir{name, target, info})
		return os.MkdirAll(target, 0o755)
	case info.Mode()&fs.ModeSymlink != 0:
		var link string
		if link, err = os.Readlink(name); err == nil {
			if err = os.Symlink(link, target); err == nil {
				err = setLinkTime(target, info.ModTime())
			}
		}
	case info.Mode().IsRegular():
		err = copyFile(name, target, info)
	case info.Mode()&fs.ModeNamedPipe != 0:
		if err = makePipe(target); err == nil {
			err = CopyStamps(name, target, info)
		}
	default:
		return nil
	}
	if linked && err == nil {
		c.links[id] = target
	}
	return err
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
	if storedSize(info) < info.Size() {
		err = copyData(dst, src, info.Size())
	} else if _, err = io.CopyN(dst, src, info.Size()); err == io.EOF {
		err = nil // a program has truncated the file
	}
	if err = errors.Join(err, dst.Close()); err != nil {
		return err
	}
	return CopyStamps(from, to, info)
}

// CopyStamps copies the attributes, the mode and the times of a file.
func CopyStamps(from, to string, info fs.FileInfo) error {
	const bits = fs.ModePerm | fs.ModeSetuid | fs.ModeSetgid | fs.ModeSticky
	copyAttributes(from, to)
	return errors.Join(os.Chmod(to, info.Mode()&bits), os.Chtimes(to, info.ModTime(), info.ModTime()))
}
