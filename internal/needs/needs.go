// Package needs skips tests on machines that lack what they need, with a reason
// that names it. With SANDBOX_TEST_NEEDS=all in the environment, as in CI,
// where everything is installed, a test fails instead: nothing is skipped
// unnoticed.
package needs

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/go-vercel/sandbox"
)

// Missing skips the test with the given reason.
func Missing(tb testing.TB, format string, args ...any) {
	tb.Helper()
	if os.Getenv("SANDBOX_TEST_NEEDS") == "all" {
		tb.Fatalf("SANDBOX_TEST_NEEDS=all, but this machine lacks what the test needs: "+format, args...)
		return
	}
	tb.Skipf("needs "+format, args...)
}

// Programs skips the test unless each of the programs is in PATH.
func Programs(tb testing.TB, names ...string) {
	tb.Helper()
	for _, name := range names {
		if _, err := exec.LookPath(name); err != nil {
			Missing(tb, "%s in PATH", name)
		}
	}
}

// Root skips the test unless commands of sb run with Sudo may change the whole
// file system, which they may not if the emulator has no root.
func Root(tb testing.TB, sb *sandbox.Sandbox) {
	tb.Helper()
	probe(tb, sb, "root in the sandbox", "touch /usr/local/needs-probe && rm /usr/local/needs-probe")
}

// Users skips the test unless sb has sudo, and users can be added to it.
func Users(tb testing.TB, sb *sandbox.Sandbox) {
	tb.Helper()
	probe(tb, sb, "sudo and useradd in the sandbox", "command -v sudo >/dev/null || { echo no sudo; exit 1; }; useradd needs-probe && userdel needs-probe")
}

func probe(tb testing.TB, sb *sandbox.Sandbox, what, script string) {
	tb.Helper()
	done, err := sb.RunCommand(tb.Context(), "sh", []string{"-c", script + " 2>&1"}, &sandbox.CommandOptions{Sudo: true})
	if err != nil {
		Missing(tb, "%s: %v", what, err)
	}
	if done.ExitCode != 0 {
		out, _ := done.Stdout(tb.Context())
		Missing(tb, "%s: %s", what, strings.TrimSpace(out))
	}
}
