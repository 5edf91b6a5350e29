// Package settings finds the folders of the command line and keeps the choice about telemetry.
package settings

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"

	"github.com/gofrs/flock"
)

const folder = "sandbox-cli"

// Dirs are the directories of the files.
type Dirs struct{ Config, State string }

// ErrNoHome is the error of a change without a directory for the files.
var ErrNoHome = errors.New("there is no home directory to keep files in; set HOME")

// FindDirs finds the directories by the XDG variables, or where the system has
// them. Without a home directory there are none: nothing is read there, and writing is an
// error.
func FindDirs(lookup func(string) (string, bool)) Dirs {
	config, _ := os.UserConfigDir()
	state := config
	if home, err := os.UserHomeDir(); runtime.GOOS != "windows" && runtime.GOOS != "darwin" {
		if state = filepath.Join(home, ".local", "state"); err != nil {
			state = ""
		}
	}
	if home, err := os.UserHomeDir(); err == nil {
		if _, err := os.Stat(home); errors.Is(err, fs.ErrNotExist) { // as nobody's and that of services: it is not to be made
			config, state = "", ""
		}
	}
	for key, dir := range map[string]*string{"XDG_CONFIG_HOME": &config, "XDG_STATE_HOME": &state} {
		if v, ok := lookup(key); ok && filepath.IsAbs(v) {
			*dir = v
		}
		if *dir != "" {
			*dir = filepath.Join(*dir, folder)
		}
	}
	return Dirs{Config: config, State: state}
}

// maxFile is how long a file may be.
const maxFile = 1 << 20

// read reads a file. It never waits for a pipe.
func read(name string) ([]byte, error) {
	info, err := os.Stat(name)
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, errors.New("it is not a file")
	case info.Size() > maxFile:
		return nil, fmt.Errorf("it has more than %d KiB", maxFile>>10)
	}
	return os.ReadFile(name)
}

// update changes a file, while no other process of this program does. One that is
// missing is empty.
func update(name string, change func(data []byte) ([]byte, error)) error {
	if !filepath.IsAbs(name) {
		return ErrNoHome
	}
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		return err
	}
	lock := flock.New(filepath.Join(filepath.Dir(name), ".lock"), flock.SetPermissions(0o600))
	if err := lock.Lock(); err != nil {
		return err
	}
	defer func() { _ = lock.Close() }()
	data, err := read(name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s: %w", name, err)
	}
	if data, err = change(data); err != nil {
		return err
	}
	return write(name, data)
}

// write replaces a file, whole or not at all, readable by its owner only. A link to
// it stays.
func write(name string, data []byte) (err error) {
	if real, err := filepath.EvalSymlinks(name); err == nil {
		name = real
	}
	f, err := os.CreateTemp(filepath.Dir(name), ".new-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			os.Remove(f.Name())
		}
	}()
	if _, err := f.Write(data); err != nil {
		f.Close()
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	return os.Rename(f.Name(), name)
}
