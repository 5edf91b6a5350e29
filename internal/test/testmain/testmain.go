// Package testmain is how the tests of a package begin and end: in an environment
// that is the same on every machine, and without a goroutine left behind.
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

// patience is how long goroutines may take to end after the last test. goleak
// itself waits for half a second, in which a busy machine may not have ended the
// processes that they wait for.
const patience = time.Minute

// Main runs the tests of a package in an [Environment] of their own, and fails if
// they leave a goroutine behind. TestMain calls it; it does not return.
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

// cleanEnv is set in the environment that Environment has made: what a test gives
// to a process of its own program is not a user's.
const cleanEnv = "SANDBOX_TEST_ENVIRONMENT"

// Environment takes away what users may have set, and tests don't ask for:
// credentials, proxies, options of programs such as Git and tar, languages. It sets
// the umask that the platform has, and lets go build what tests run in any clone.
func Environment() {
	setUmask(0o022)
	if os.Getenv(cleanEnv) != "" {
		return
	}
	for _, kv := range os.Environ() {
		name, _, _ := strings.Cut(kv, "=")
		if name != "" && !kept(name) {
			_ = os.Unsetenv(name) // fails for names that can't be there
		}
	}
	// Of a directory that may not be searched, which su leaves there, sh says that a
	// program may not be executed, and env that there is none.
	dirs := slices.DeleteFunc(filepath.SplitList(os.Getenv("PATH")), func(dir string) bool {
		_, err := os.Stat(filepath.Join(dir, "program"))
		return errors.Is(err, fs.ErrPermission)
	})
	// The python3 of a version manager is a script that takes ten times as long to
	// start as the program that it finds. The system's programs come first.
	slices.SortStableFunc(dirs, func(a, b string) int { return shims(a) - shims(b) })
	_ = os.Setenv("PATH", strings.Join(dirs, string(filepath.ListSeparator)))
	// Git tells nothing of a clone of another user's, as a container has it, and go
	// fails to ask for the revision of what it builds.
	_ = os.Setenv("GOFLAGS", strings.TrimSpace(os.Getenv("GOFLAGS")+" -buildvcs=false"))
	_ = os.Setenv(cleanEnv, "1")
}

// shims is 1 for a directory of scripts that a version manager such as pyenv, asdf or
// rbenv puts before programs.
func shims(dir string) int {
	if filepath.Base(dir) == "shims" {
		return 1
	}
	return 0
}

var (
	// keptNames are what programs need to be found and to work: of users, of the
	// dynamic linker and certificates where systems have them elsewhere, and of
	// Windows.
	keptNames = []string{
		"PATH", "HOME", "USER", "LOGNAME", "SHELL", "TMPDIR", "TERM", "CI", "LD_LIBRARY_PATH", "SSL_CERT_FILE", "SSL_CERT_DIR", "XDG_CACHE_HOME", "CC", "CXX",
		"APPDATA", "COMSPEC", "LOCALAPPDATA", "NUMBER_OF_PROCESSORS", "PATHEXT", "PROGRAMDATA", "PROGRAMFILES", "SYSTEMDRIVE", "SYSTEMROOT", "TEMP", "TMP",
		"USERNAME", "USERPROFILE", "WINDIR",
	}
	// keptPrefixes are of Go, of Nix, and of these tests.
	keptPrefixes = []string{"GO", "CGO_", "NIX_", "SANDBOX_", "SANDBOXTEST_"}
	// settings are of the programs that are tested.
	settings = []string{"SANDBOX_NAME", "SANDBOX_PROJECT", "SANDBOX_SCOPE", "SANDBOX_TOKEN", "SANDBOX_BOX_ID", "SANDBOX_CONTROL_URL", "SANDBOX_CONTROL_TOKEN"}
)

func kept(name string) bool {
	name = strings.ToUpper(name) // for Windows, and no harm elsewhere but to http_proxy, which is not kept
	if slices.Contains(settings, name) {
		return false
	}
	return slices.Contains(keptNames, name) || slices.ContainsFunc(keptPrefixes, func(p string) bool { return strings.HasPrefix(name, p) })
}
