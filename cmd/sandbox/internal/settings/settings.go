// Package settings finds the folders of the command line and keeps the choice about telemetry.
package settings

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
)

const folder = "sandbox-cli"

// Dirs are the directories of the files.
type Dirs struct{ Config, State string }

// ErrNoHome is the error of a change that can't be stored, because there is no directory
// for it.
var ErrNoHome = errors.New("there is no home directory to keep files in; set HOME")

// FindDirs finds the directories by the XDG variables, or where the system keeps such
// files. Without a home directory it finds none.
func FindDirs(lookup func(string) (string, bool)) Dirs {
	config, _ := os.UserConfigDir()
	state := config
	if home, err := os.UserHomeDir(); runtime.GOOS != "windows" && runtime.GOOS != "darwin" {
		if state = filepath.Join(home, ".local", "state"); err != nil {
			state = ""
		}
	}
	if home, err := os.UserHomeDir(); err == nil {
		if _, err := os.Stat(home); errors.Is(err, fs.ErrNotExist) { // such as that of nobody: don't create it
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

// maxFile is the maximum size of a file.
const maxFile = 1 << 20

// read reads a regular file. It refuses a pipe, which it could wait for.
func read(name string) ([]byte, error) {
	info, err := os.Stat(name)
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, errors.New("it is not a regular file")
	case info.Size() > maxFile:
		return nil, fmt.Errorf("it has more than %d KiB", maxFile>>10)
	}
	return os.ReadFile(name)
}

// SetTelemetry records a choice about the telemetry of the official CLI, in the file where
// that CLI keeps it. It keeps the other contents of the file.
func (d Dirs) SetTelemetry(enabled bool) error {
	if d.Config == "" {
		return ErrNoHome
	}
	if err := os.MkdirAll(d.Config, 0o700); err != nil {
		return err
	}
	name := filepath.Join(d.Config, "telemetry.json")
	data, err := read(name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s: %w", name, err)
	}
	all := map[string]any{}
	if len(data) > 0 {
		if err := json.Unmarshal(data, &all); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	if all == nil { // the file contains null
		all = map[string]any{}
	}
	all["enabled"] = enabled
	if data, err = json.MarshalIndent(all, "", "  "); err != nil {
		return err
	}
	return write(name, append(data, '\n'))
}

// write replaces a file atomically. Only the owner may read the file. If name is a symbolic
// link, write replaces the file that it points to.
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
