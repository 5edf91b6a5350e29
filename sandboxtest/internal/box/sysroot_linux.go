package box

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// sysroot is a tree that boxes have as their root: the machine's own, or that of
// an image. Names in it, and the links that they lead through, mean what they
// mean to programs that run there: whatever an image holds, they never lead
// outside it.
type sysroot struct {
	dir string // clean, without links; "/" is the machine's
}

// machineRoot is the machine's own.
var machineRoot = sysroot{"/"}

// maxSystemFile bounds the files that are read of an image.
const maxSystemFile = 64 << 20

func (r sysroot) isMachine() bool { return r.dir == "/" }

// open opens a name of an image.
func (r sysroot) open(name string, flags uint64) (*os.File, error) {
	dir, err := unix.Open(r.dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: r.dir, Err: err}
	}
	defer unix.Close(dir)
	fd, err := unix.Openat2(dir, name, &unix.OpenHow{Flags: flags | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS})
	if err == unix.ELOOP || err == unix.ENOTDIR {
		err = unix.ENOENT // programs see it as missing
	}
	if err != nil {
		return nil, &fs.PathError{Op: "open in " + r.dir, Path: name, Err: err}
	}
	return os.NewFile(uintptr(fd), name), nil
}

// readFile reads a regular file.
func (r sysroot) readFile(name string) ([]byte, error) {
	if r.isMachine() {
		return os.ReadFile(name)
	}
	f, err := r.open(name, unix.O_RDONLY|unix.O_NONBLOCK)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, &fs.PathError{Op: "read in " + r.dir, Path: name, Err: fs.ErrNotExist}
	}
	if info.Size() > maxSystemFile {
		return nil, fmt.Errorf("%s of the image has %d bytes, more than %d", name, info.Size(), maxSystemFile)
	}
	return io.ReadAll(f)
}

// resolve returns the name without links to which a name leads.
func (r sysroot) resolve(name string) (string, error) {
	if r.isMachine() {
		return filepath.EvalSymlinks(name)
	}
	f, err := r.open(name, unix.O_PATH)
	if err != nil {
		return "", err
	}
	defer f.Close()
	fd, err := descriptor(f)
	if err != nil {
		return "", err
	}
	full, err := os.Readlink(fmt.Sprintf("/proc/thread-self/fd/%d", fd))
	if err != nil {
		return "", err
	}
	if full == r.dir {
		return "/", nil
	}
	inside, ok := strings.CutPrefix(full, strings.TrimSuffix(r.dir, "/")+"/")
	if !ok {
		return "", fmt.Errorf("%s of the image is %s, outside of %s", name, full, r.dir)
	}
	return "/" + inside, nil
}

// stat follows links.
func (r sysroot) stat(name string) (fs.FileInfo, error) {
	if r.isMachine() {
		return os.Stat(name)
	}
	f, err := r.open(name, unix.O_PATH)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return f.Stat()
}

// lstat follows none in the last part of the name.
func (r sysroot) lstat(name string) (fs.FileInfo, error) {
	if r.isMachine() {
		return os.Lstat(name)
	}
	f, err := r.open(name, unix.O_PATH|unix.O_NOFOLLOW)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return f.Stat()
}

// executable reports whether a name is a program.
func (r sysroot) executable(name string) bool {
	info, err := r.stat(name)
	return err == nil && !info.IsDir() && info.Mode()&0o111 != 0
}
