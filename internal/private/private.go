// Package private makes folders for what belongs to one user of the machine alone:
// tokens, keys, sockets, databases.
package private

import (
	"errors"
	"fmt"
	"os"
	"runtime"
)

// Dir makes a folder that only this user can enter, with the folders above it. One that
// is another user's is refused, and so is one that others could write to and that has
// something in it, which may be theirs; a link is refused, too.
func Dir(path string) error {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return err
	}
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	const others, write = 0o077, 0o022
	mode := info.Mode().Perm()
	switch {
	case !info.IsDir(), !mine(info):
		return fmt.Errorf("%s is not a directory of this user, or is a link", path)
	case mode&others == 0 || runtime.GOOS == "windows":
		return nil
	}
	if err := os.Chmod(path, 0o700); err != nil { //nolint:gosec // a folder is entered
		return err
	}
	if mode&write == 0 {
		return nil
	}
	entries, err := os.ReadDir(path) // now that nobody else adds to it
	if err == nil && len(entries) > 0 {
		err = fmt.Errorf("other users could write to %s, and %s in it may be theirs: use another folder, or look at what is there and remove their right to write", path, entries[0].Name())
	}
	if err != nil {
		return errors.Join(err, os.Chmod(path, mode))
	}
	return nil
}
