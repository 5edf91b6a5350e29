package backend

import (
	"bytes"
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// copyData copies the data of a file and leaves out its holes. If the file system can, both
// files share their blocks.
func copyData(dst, src *os.File, size int64) error {
	for at := int64(0); at < size; {
		data, err := src.Seek(at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			break // the rest is a hole
		}
		if err != nil {
			return err
		}
		end, err := src.Seek(data, unix.SEEK_HOLE)
		if err != nil {
			return err
		}
		if _, err = src.Seek(data, io.SeekStart); err == nil {
			_, err = dst.Seek(data, io.SeekStart)
		}
		if err == nil {
			_, err = io.CopyN(dst, src, end-data)
		}
		if err == io.EOF { // a program has truncated the file
			break
		}
		if err != nil {
			return err
		}
		at = end
	}
	return dst.Truncate(size)
}

// copyAttributes copies the extended attributes that this process may set.
func copyAttributes(from, to string) {
	if n, err := unix.Llistxattr(from, nil); n == 0 || err != nil {
		return // nearly every file, or a file system without attributes
	}
	value := make([]byte, 64<<10) // Linux allows no more
	names := make([]byte, 64<<10)
	n, err := unix.Llistxattr(from, names)
	if err != nil {
		return
	}
	for name := range bytes.SplitSeq(names[:n], []byte{0}) {
		if len(name) == 0 {
			continue
		}
		if n, err := unix.Lgetxattr(from, string(name), value); err == nil {
			_ = unix.Lsetxattr(to, string(name), value[:n], 0) // not every attribute may be set
		}
	}
}
