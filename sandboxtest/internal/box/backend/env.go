package backend

import (
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/go-vercel/sandbox/sandboxtest/internal/box/inside"
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
	return inside.MergeEnv(env, spec.Env)
}
