package backend

import (
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// platformBin is the directory of the platform's own programs.
const platformBin = VercelDir + "/bin"

// SearchPath is the PATH of commands that set none: the platform's directory, the host's
// PATH, so that its programs are found, and the usual directories.
func SearchPath() string {
	dirs := filepath.SplitList(os.Getenv("PATH"))
	if runtime.GOOS != "windows" {
		for _, dir := range []string{"/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"} {
			if !slices.Contains(dirs, dir) {
				dirs = append(dirs, dir)
			}
		}
	}
	if runtime.GOOS != "windows" {
		dirs = slices.Insert(dirs, 0, platformBin)
	}
	// A relative entry would mean another directory for each working directory.
	dirs = slices.DeleteFunc(dirs, func(dir string) bool { return !filepath.IsAbs(dir) })
	return strings.Join(dirs, string(os.PathListSeparator))
}

// DefaultShell is the shell of users, if it exists.
const DefaultShell = "/bin/bash"

// defaultEnv returns the environment of a command: its own variables, which override the
// defaults.
func defaultEnv(spec *Spec, account Account, path string) []string {
	user, home := account.Name, account.Home
	if spec.User == RootUser {
		user, home = RootUser, "/root"
	}
	env := []string{
		"PATH=" + path, "HOME=" + home, "USER=" + user, "LOGNAME=" + user,
		"SHELL=" + DefaultShell, "LANG=C.UTF-8",
	}
	if spec.User == RootUser {
		env = append(env, "SUDO_USER="+account.Name)
	}
	if spec.TTY != nil {
		env = append(env, "TERM=xterm-256color")
	}
	return MergeEnv(env, spec.Env)
}

// MergeEnv merges two environments, in which over takes precedence. Each key occurs once,
// in its first position.
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

// LookupEnv returns the value of a key in an environment without duplicates.
func LookupEnv(env []string, key string) string {
	for _, kv := range env {
		if k, value, _ := strings.Cut(kv, "="); k == key {
			return value
		}
	}
	return ""
}
