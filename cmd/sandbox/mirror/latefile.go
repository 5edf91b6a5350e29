package mirror

import (
	"errors"
	"io"
)

// lateFile is a file that is opened by the first Read and closed at its end, so
// that any number of them can be uploaded at once. What is beyond its size is not
// read; if it is shorter, Read fails with short.
type lateFile struct {
	open  func() (io.ReadCloser, error)
	short error
	size  int64
	at    int64
	file  io.ReadCloser
}

// Seek implements [io.Seeker].
func (f *lateFile) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += f.at
	case io.SeekEnd:
		offset += f.size
	}
	if offset < 0 {
		return 0, errors.New("the position is before the beginning of the file")
	}
	f.at = offset
	return offset, f.close()
}

// Read implements [io.Reader].
func (f *lateFile) Read(p []byte) (int, error) {
	if f.at >= f.size {
		return 0, io.EOF
	}
	if f.file == nil {
		file, err := f.open()
		if err != nil {
			return 0, err
		}
		f.file = file
		if _, err := io.CopyN(io.Discard, file, f.at); err != nil {
			if err == io.EOF {
				err = f.short
			}
			return 0, errors.Join(err, f.close())
		}
	}
	n, err := f.file.Read(p[:min(int64(len(p)), f.size-f.at)])
	f.at += int64(n)
	if err == io.EOF && f.at < f.size {
		err = f.short
	}
	if err != nil || f.at == f.size {
		_ = f.close() // it was only read
	}
	return n, err
}

func (f *lateFile) close() error {
	if f.file == nil {
		return nil
	}
	file := f.file
	f.file = nil
	return file.Close()
}
