// Package testmain runs the tests of a package in the same environment on every machine. The
// run fails if the tests leak goroutines.
package testmain

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"go.uber.org/goleak"
)

// patience is how long goroutines may take to end after the last test. goleak waits only for
// half a second. On a busy machine, that is too short for goroutines that wait for processes.
const patience = time.Minute

// Main runs the tests of a package in a clean [Environment] and exits. The exit code is not
// 0 if a test leaks a goroutine. TestMain calls Main.
func Main(m goleak.TestingM) {
	Environment()
	code := m.Run()
	if code == 0 {
		if err := find(); err != nil {
			fmt.Fprintln(os.Stderr, "goleak:", err)
			code = 1
		}
	}
	os.Exit(code)
}

func find() error {
	err := goleak.Find()
	for begin := time.Now(); err != nil && time.Since(begin) < patience; {
		err = goleak.Find()
	}
	return err
}

// cleanEnv marks an environment that Environment has cleaned. If a test starts another
// process of the test program, this process keeps the variables that the test has set.
const cleanEnv = "SANDBOX_TEST_ENVIRONMENT"

// Environment removes the user's variables that could affect tests: credentials, proxies,
// options of programs such as Git and tar, and languages. It also sets the platform's umask,
// and makes go build work in the clone of another user.
func Environment() {
	setUmask(0o022)
	if os.Getenv(cleanEnv) != "" {
		return
	}
	for _, kv := range os.Environ() {
		name, _, _ := strings.Cut(kv, "=")
		if name != "" && !kept(name) {
			_ = os.Unsetenv(name) // fails only for invalid names
		}
	}
	// Remove the directories that this user may not search, which su leaves in PATH. With
	// such a directory, sh and env report different errors for a missing program.
	dirs := slices.DeleteFunc(filepath.SplitList(os.Getenv("PATH")), func(dir string) bool {
		_, err := os.Stat(filepath.Join(dir, "program"))
		return errors.Is(err, fs.ErrPermission)
	})
	// Put the system's programs first. The python3 of a version manager is a script, and
	// takes ten times as long to start.
	slices.SortStableFunc(dirs, func(a, b string) int { return shims(a) - shims(b) })
	_ = os.Setenv("PATH", strings.Join(dirs, string(filepath.ListSeparator)))
	// Don't let go build ask Git for the revision. In a container, the clone may belong to
	// another user, and Git refuses to read it.
	_ = os.Setenv("GOFLAGS", strings.TrimSpace(os.Getenv("GOFLAGS")+" -buildvcs=false"))
	_ = os.Setenv(cleanEnv, "1")
}

// shims returns 1 for the directory in which a version manager such as pyenv, asdf or rbenv
// keeps its scripts, and 0 for other directories.
func shims(dir string) int {
	if filepath.Base(dir) == "shims" {
		return 1
	}
	return 0
}

var (
	// keptNames are variables that programs need: for the user, the dynamic linker,
	// certificates in unusual places, and Windows.
	keptNames = []string{
		"PATH", "HOME", "USER", "LOGNAME", "SHELL", "TMPDIR", "TERM", "CI", "LD_LIBRARY_PATH", "SSL_CERT_FILE", "SSL_CERT_DIR", "XDG_CACHE_HOME", "CC", "CXX",
		"APPDATA", "COMSPEC", "LOCALAPPDATA", "NUMBER_OF_PROCESSORS", "PATHEXT", "PROGRAMDATA", "PROGRAMFILES", "SYSTEMDRIVE", "SYSTEMROOT", "TEMP", "TMP",
		"USERNAME", "USERPROFILE", "WINDIR",
	}
	// keptPrefixes are the prefixes of the variables of Go, of Nix, and of these tests.
	keptPrefixes = []string{"GO", "CGO_", "NIX_", "SANDBOX_", "SANDBOXTEST_"}
	// settings are variables of the programs under test. They are removed despite their prefix.
	settings = []string{"SANDBOX_NAME", "SANDBOX_PROJECT", "SANDBOX_SCOPE", "SANDBOX_TOKEN", "SANDBOX_BOX_ID", "SANDBOX_CONTROL_URL", "SANDBOX_CONTROL_TOKEN"}
)

func kept(name string) bool {
	name = strings.ToUpper(name) // Windows ignores case
	if slices.Contains(settings, name) {
		return false
	}
	return slices.Contains(keptNames, name) || slices.ContainsFunc(keptPrefixes, func(p string) bool { return strings.HasPrefix(name, p) })
}
