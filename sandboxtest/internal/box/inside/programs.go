package inside

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// The ID of a sandbox's user, and the name of root.
const (
	UserID   = 1000
	RootUser = "root"
)

// LookPath finds a program as a shell does, in the PATH of env and relative to
// dir, and not in the host's own environment.
func LookPath(name, dir string, env []string) (string, error) {
	if runtime.GOOS == "windows" {
		return exec.LookPath(name) // knows the extensions
	}
	if strings.Contains(name, "/") {
		if !filepath.IsAbs(name) {
			name = filepath.Join(dir, name)
		}
		return name, CheckExecutable(name)
	}
	found := error(&fs.PathError{Op: "exec", Path: name, Err: fs.ErrNotExist})
	for _, elem := range filepath.SplitList(PathOf(env)) {
		if !filepath.IsAbs(elem) {
			elem = filepath.Join(dir, elem)
		}
		full := filepath.Join(elem, name)
		if _, err := os.Stat(full); err != nil {
			continue // an unreadable directory counts as empty
		}
		if found = CheckExecutable(full); found == nil {
			return full, nil
		}
	}
	return "", found
}

// CheckExecutable returns an error if a file can't be run as a program.
func CheckExecutable(name string) error {
	info, err := os.Stat(name)
	if err != nil {
		return err
	}
	if info.IsDir() || info.Mode()&0o111 == 0 {
		return &fs.PathError{Op: "exec", Path: name, Err: fs.ErrPermission}
	}
	return nil
}

// MergeEnv adds over to base. Each key occurs once, in the order of its first occurrence.
func MergeEnv(base, over []string) []string {
	env := make([]string, 0, len(base)+len(over))
	at := make(map[string]int, len(base)+len(over))
	for _, kv := range slices.Concat(base, over) {
		key, _, _ := strings.Cut(kv, "=")
		if i, ok := at[key]; ok {
			env[i] = kv
			continue
		}
		at[key] = len(env)
		env = append(env, kv)
	}
	return env
}

// PathOf returns the PATH of an environment in which each key occurs once.
func PathOf(env []string) string {
	for _, kv := range env {
		if path, ok := strings.CutPrefix(kv, "PATH="); ok {
			return path
		}
	}
	return ""
}
