// Package settings keeps the files of the command line: profiles, the active
// sandbox of each folder, and the choice about telemetry.
package settings

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"syscall"

	"github.com/pelletier/go-toml/v2"
)

const folder = "sandbox-cli"

// Dirs are the directories of the files.
type Dirs struct{ Config, State, Cache string }

// ErrNoHome is the error of a change without a directory for the files.
var ErrNoHome = errors.New("there is no home directory to keep files in; set HOME")

// FindDirs finds the directories by the XDG variables, or where the system has
// them. Who has no home has none of them: nothing is read there, and nothing can be
// written.
func FindDirs(lookup func(string) (string, bool)) Dirs {
	config, _ := os.UserConfigDir()
	cache, _ := os.UserCacheDir()
	state := config
	if home, err := os.UserHomeDir(); runtime.GOOS != "windows" && runtime.GOOS != "darwin" {
		if state = filepath.Join(home, ".local", "state"); err != nil {
			state = ""
		}
	}
	for key, dir := range map[string]*string{"XDG_CONFIG_HOME": &config, "XDG_STATE_HOME": &state, "XDG_CACHE_HOME": &cache} {
		if v, ok := lookup(key); ok && filepath.IsAbs(v) {
			*dir = v
		}
		if *dir != "" {
			*dir = filepath.Join(*dir, folder)
		}
	}
	return Dirs{Config: config, State: state, Cache: cache}
}

// maxFile is how long a file may be.
const maxFile = 1 << 20

// read reads a file. One that is in no directory at all, or in one that can't be
// entered, does not exist, whatever the working directory has under its name; a pipe
// is not waited for.
func read(name string) ([]byte, error) {
	if !filepath.IsAbs(name) {
		return nil, fs.ErrNotExist
	}
	info, err := os.Stat(name)
	switch {
	case errors.Is(err, syscall.ENOTDIR), errors.Is(err, fs.ErrPermission): // as sudo leaves HOME
		return nil, fs.ErrNotExist
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, errors.New("it is not a file")
	case info.Size() > maxFile:
		return nil, fmt.Errorf("it has more than %d KiB", maxFile>>10)
	}
	return os.ReadFile(name)
}

// Profile is a team and project to work in, and possibly a token.
type Profile struct {
	Team    string `toml:"team,omitempty"`
	Project string `toml:"project,omitempty"`
	Token   string `toml:"token,omitempty"`
	APIURL  string `toml:"api_url,omitempty"`
}

// Config is the file config.toml.
type Config struct {
	// Profile is the name of the profile that is in force without --profile.
	Profile  string             `toml:"profile,omitempty"`
	Profiles map[string]Profile `toml:"profiles,omitempty"`
}

func (d Dirs) configFile() string { return filepath.Join(d.Config, "config.toml") }

// ReadConfig reads config.toml; one that is missing is empty.
func (d Dirs) ReadConfig() (Config, error) {
	var c Config
	data, err := read(d.configFile())
	if errors.Is(err, fs.ErrNotExist) {
		return c, nil
	}
	if err == nil {
		err = toml.Unmarshal(data, &c)
	}
	if err != nil {
		return Config{}, fmt.Errorf("%s: %w", d.configFile(), err)
	}
	return c, nil
}

// WriteConfig writes config.toml.
func (d Dirs) WriteConfig(c Config) error {
	data, err := toml.Marshal(c)
	if err != nil {
		return err
	}
	return write(d.configFile(), data)
}

func (d Dirs) activeFile() string { return filepath.Join(d.State, "active.json") }
func (d Dirs) agreedFile() string { return filepath.Join(d.State, "agreed.json") }

// Agreed returns what was agreed to last of a file, and "" when nothing was.
func (d Dirs) Agreed(file string) (string, error) {
	all, err := readTexts(d.agreedFile())
	return all[file], err
}

// Agree notes what is agreed to of a file.
func (d Dirs) Agree(file, what string) error { return change(d.agreedFile(), file, what) }

// Active returns the active sandbox of a folder or of the nearest of its parents
// that has one, and "" when there is none.
func (d Dirs) Active(dir string) (string, error) {
	all, err := readTexts(d.activeFile())
	if err != nil {
		return "", err
	}
	for {
		if name := all[dir]; name != "" {
			return name, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", nil
		}
		dir = parent
	}
}

// SetActive makes a sandbox the active one of a folder; no name forgets it.
func (d Dirs) SetActive(dir, name string) error { return change(d.activeFile(), dir, name) }

// change sets a text of a file of texts; an empty one is taken out.
func change(file, key, text string) error {
	all, err := readTexts(file)
	if err != nil {
		return err
	}
	if text == "" {
		delete(all, key)
	} else {
		all[key] = text
	}
	data, err := json.MarshalIndent(all, "", "  ")
	if err != nil {
		return err
	}
	return write(file, append(data, '\n'))
}

// readTexts reads texts by their keys; a file that is missing has none.
func readTexts(file string) (map[string]string, error) {
	all := map[string]string{}
	data, err := read(file)
	if errors.Is(err, fs.ErrNotExist) {
		return all, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &all)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if all == nil { // the file says null
		all = map[string]string{}
	}
	return all, nil
}

// write replaces a file, whole or not at all, readable by its owner only.
func write(name string, data []byte) (err error) {
	if !filepath.IsAbs(name) {
		return ErrNoHome
	}
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		return err
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
