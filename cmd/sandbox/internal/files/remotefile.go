package files

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"time"

	"github.com/go-vercel/sandbox"
)

const (
	// fetchAttempts limits how often a file is requested if its connection breaks.
	fetchAttempts = 3
	fetchPause    = 400 * time.Millisecond
)

// remoteFile reads a file of a sandbox. When the connection breaks, it
// fetches the file again and skips the part that it has read, if that part is unchanged.
type remoteFile struct {
	ctx   context.Context
	files *sandbox.FileSystem
	name  string

	body     *sandbox.FileReader
	size     int64 // the file is complete only if it has this many bytes
	read     int64
	sum      hash.Hash
	attempts int
	err      error
}

// OpenRemote opens a file of a sandbox. The caller closes it.
func OpenRemote(ctx context.Context, files *sandbox.FileSystem, name string) (*remoteFile, error) {
	body, err := files.Open(ctx, name, &sandbox.OpenOptions{NoSizeCheck: true}) // Read checks the size itself, and fetches the file again
	if err != nil {
		return nil, err
	}
	f := &remoteFile{ctx: ctx, files: files, name: name, body: body, size: body.Size(), sum: sha256.New(), attempts: 1}
	if f.size < 0 {
		// Without a length, a response that is cut off would look complete.
		if info, err := files.Stat(ctx, name); err == nil && info.Mode().IsRegular() {
			f.size = info.Size()
		}
	}
	return f, nil
}

func (f *remoteFile) Close() error { return f.body.Close() }

func (f *remoteFile) Read(p []byte) (int, error) {
	for f.err == nil {
		n, err := f.body.Read(p)
		f.sum.Write(p[:n])
		f.read += int64(n)
		switch {
		case err == nil:
		case errors.Is(err, io.EOF) && f.read >= f.size:
			f.err = io.EOF
		case errors.Is(err, io.EOF):
			f.err = f.reopen(io.ErrUnexpectedEOF)
		default:
			f.err = f.reopen(err)
		}
		if n > 0 {
			return n, nil
		}
	}
	return 0, f.err
}

// reopen requests the file again and skips the part that was already read. cause is the
// error that interrupted the reading.
func (f *remoteFile) reopen(cause error) error {
	for ; f.attempts < fetchAttempts; f.attempts++ {
		select {
		case <-time.After(time.Duration(f.attempts) * fetchPause):
		case <-f.ctx.Done():
			return cause
		}
		body, err := f.files.Open(f.ctx, f.name, &sandbox.OpenOptions{NoSizeCheck: true})
		if err != nil {
			return err
		}
		f.body.Close()
		f.body = body
		skipped := sha256.New()
		n, err := io.CopyN(skipped, body, f.read)
		switch {
		case err == nil && bytes.Equal(skipped.Sum(nil), f.sum.Sum(nil)):
			f.attempts++
			return nil
		case err == nil, errors.Is(err, io.EOF) && n < f.read && body.Size() >= 0:
			return &fs.PathError{Op: "read", Path: f.name, Err: errors.New("the file has changed while it was read")}
		}
		cause = err
	}
	return fmt.Errorf("the connection broke %d times: %w", f.attempts, cause)
}
