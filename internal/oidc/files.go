package oidc

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/gofrs/flock"
)

// object is a JSON object whose unknown keys survive being written back.
type object map[string]json.RawMessage

// readObject reads a JSON object from a file. Errors name the file and never
// show what is in it. A missing file matches fs.ErrNotExist; an empty one,
// which the official tools leave behind, counts as an empty object.
func readObject(file string) (object, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	data, err := io.ReadAll(io.LimitReader(f, maxBody+1))
	switch {
	case err != nil:
		return nil, err
	case len(data) > maxBody:
		return nil, fmt.Errorf("%s is too large to be what it should be", file)
	case len(data) == 0:
		return object{}, nil
	}
	o := object{}
	if json.Unmarshal(data, &o) != nil || o == nil {
		return nil, fmt.Errorf("%s is broken: it does not hold a JSON object", file)
	}
	return o, nil
}

// get decodes the value of a key into v. A key that is absent or null leaves v
// alone.
func (o object) get(file, key string, v any) error {
	raw, ok := o[key]
	if !ok {
		return nil
	}
	if json.Unmarshal(raw, v) != nil {
		return fmt.Errorf("%s is broken: its %q is not of the expected type", file, key)
	}
	return nil
}

// set encodes the value of a key.
func (o object) set(key string, v any) error {
	raw, err := json.Marshal(v)
	if err != nil {
		return err
	}
	o[key] = raw
	return nil
}

// replacement is a file about to be replaced: everything that can fail for
// want of a permission has been done when there is one.
type replacement struct {
	file string
	temp *os.File
}

// replace begins to replace a file, making its folder when needed. The caller
// calls commit or drop.
func replace(file string) (*replacement, error) {
	// A file that is a link (people keep their settings elsewhere) stays one.
	if target, err := filepath.EvalSymlinks(file); err == nil {
		file = target
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return nil, fmt.Errorf("preparing to write %s: %w", file, err)
	}
	temp, err := os.CreateTemp(filepath.Dir(file), "."+filepath.Base(file)+".*") // mode 0600
	if err != nil {
		return nil, fmt.Errorf("preparing to write %s: %w", file, err)
	}
	return &replacement{file, temp}, nil
}

// commit writes o and puts it in the file's place: whoever reads the file sees
// the old content or the new one, whole.
func (r *replacement) commit(o object) error {
	defer r.drop()
	var text bytes.Buffer
	data, err := json.Marshal(o)
	if err == nil {
		err = json.Indent(&text, data, "", "  ")
	}
	if err == nil {
		text.WriteByte('\n')
		_, err = r.temp.Write(text.Bytes())
	}
	if err == nil {
		err = r.temp.Sync()
	}
	if err == nil {
		err = r.temp.Close()
	}
	if err == nil {
		err = rename(r.temp.Name(), r.file)
	}
	if err != nil {
		return fmt.Errorf("writing %s: %w", r.file, err)
	}
	return nil
}

// rename puts a file in another's place. Windows refuses while anybody reads the
// other, which nobody does for long.
func rename(from, to string) error {
	err := os.Rename(from, to)
	for i := 0; i < 20 && err != nil && runtime.GOOS == "windows"; i++ {
		time.Sleep(lockPoll)
		err = os.Rename(from, to)
	}
	return err
}

// drop gives up the replacement. After a commit it does nothing.
func (r *replacement) drop() {
	_ = r.temp.Close()
	_ = os.Remove(r.temp.Name())
}

// lockPoll is how often a lock that another process holds is tried again.
const lockPoll = 20 * time.Millisecond

// lock takes the lock of a file, which other processes respect, and waits for
// it as long as ctx allows. The lock is a file beside it, because the file
// itself gets replaced.
func lock(ctx context.Context, file string) (unlock func(), err error) {
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return nil, fmt.Errorf("locking %s: %w", file, err)
	}
	l := flock.New(file + ".lock")
	if _, err := l.TryLockContext(ctx, lockPoll); err != nil {
		return nil, fmt.Errorf("locking %s: %w", file, err)
	}
	return func() { _ = l.Close() }, nil
}

// lockIfPossible is lock, except that on a disk where nothing can be written
// there is nothing to protect either.
func lockIfPossible(ctx context.Context, file string) (unlock func(), err error) {
	unlock, err = lock(ctx, file)
	if pathErr := (*fs.PathError)(nil); errors.As(err, &pathErr) {
		return func() {}, nil
	}
	return unlock, err
}
