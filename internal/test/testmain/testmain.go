// Package testmain runs the tests of a package in an environment that is the same on every
// machine, and fails if they leak goroutines.
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

// patience is how long goroutines may take to end after the last test. goleak waits only
// for half a second, and processes that they wait for may take longer to end on a busy
// machine.
const patience = time.Minute

// Main runs the tests of a package in a clean [Environment], and fails if they leak a
// goroutine. TestMain calls it. It does not return.
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

// cleanEnv marks an environment that Environment has cleaned. A process of the test program
// keeps the variables that a test sets for it.
const cleanEnv = "SANDBOX_TEST_ENVIRONMENT"

// Environment removes variables of the user that could change tests: credentials, proxies,
// options of programs such as Git and tar, and languages. It sets the platform's umask, and
// makes go build work in any clone.
func Environment() {
	setUmask(0o022)
	if os.Getenv(cleanEnv) != "" {
		return
	}
	for _, kv := range os.Environ() {
		name, _, _ := strings.Cut(kv, "=")
		if name != "" && !kept(name) {
			_ = os.Unsetenv(name) // fails only for impossible names
		}
	}
	// su leaves directories in PATH that this user may not search. For a missing program,
	// sh then reports that it can't be executed, and env that there is none.
	dirs := slices.DeleteFunc(filepath.SplitList(os.Getenv("PATH")), func(dir string) bool {
		_, err := os.Stat(filepath.Join(dir, "program"))
		return errors.Is(err, fs.ErrPermission)
	})
	// A version manager's python3 is a script that starts ten times as slowly as the
	// system's. The system's programs come first.
	slices.SortStableFunc(dirs, func(a, b string) int { return shims(a) - shims(b) })
	_ = os.Setenv("PATH", strings.Join(dirs, string(filepath.ListSeparator)))
	// Git refuses to read a clone of another user, as in a container, and go build would
	// fail to ask it for the revision.
	_ = os.Setenv("GOFLAGS", strings.TrimSpace(os.Getenv("GOFLAGS")+" -buildvcs=false"))
	_ = os.Setenv(cleanEnv, "1")
}

// shims returns 1 for a directory of scripts of a version manager such as pyenv, asdf or
// rbenv.
func shims(dir string) int {
	if filepath.Base(dir) == "shims" {
		return 1
	}
	return 0
}

var (
	// keptNames are variables that programs need: those of users, of the dynamic linker and
	// of certificates in unusual places, and those of Windows.
	keptNames = []string{
		"PATH", "HOME", "USER", "LOGNAME", "SHELL", "TMPDIR", "TERM", "CI", "LD_LIBRARY_PATH", "SSL_CERT_FILE", "SSL_CERT_DIR", "XDG_CACHE_HOME", "CC", "CXX",
		"APPDATA", "COMSPEC", "LOCALAPPDATA", "NUMBER_OF_PROCESSORS", "PATHEXT", "PROGRAMDATA", "PROGRAMFILES", "SYSTEMDRIVE", "SYSTEMROOT", "TEMP", "TMP",
		"USERNAME", "USERPROFILE", "WINDIR",
	}
	// keptPrefixes are those of Go, of Nix, and of these tests.
	keptPrefixes = []string{"GO", "CGO_", "NIX_", "SANDBOX_", "SANDBOXTEST_"}
	// settings are variables of the programs under test.
	settings = []string{"SANDBOX_NAME", "SANDBOX_PROJECT", "SANDBOX_SCOPE", "SANDBOX_TOKEN", "SANDBOX_BOX_ID", "SANDBOX_CONTROL_URL", "SANDBOX_CONTROL_TOKEN"}
)

func kept(name string) bool {
	name = strings.ToUpper(name) // Windows ignores case
	if slices.Contains(settings, name) {
		return false
	}
	return slices.Contains(keptNames, name) || slices.ContainsFunc(keptPrefixes, func(p string) bool { return strings.HasPrefix(name, p) })
}
