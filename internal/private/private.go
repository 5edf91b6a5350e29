// Package private creates folders that only one user of the machine can enter, for
// tokens, keys, sockets and databases.
package private

import (
	"errors"
	"fmt"
	"os"
	"runtime"
)

// Dir creates a folder that only this user can enter, with missing parents. It refuses a
// folder of another user, a link, and a folder that is not empty and that others could
// write to, because its content may be theirs.
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
