package testkit

import (
	"strings"
	"sync"
	"testing"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/internal/test/needs"
)

// NeedBox skips the test unless sb has its own file system. In folder mode, the test could
// change files of the machine.
func NeedBox(tb testing.TB, sb *sandbox.Sandbox) {
	tb.Helper()
	probe(tb, sb, "a sandbox whose files are not the machine's", "true")
}

// NeedRoot skips the test unless commands of sb with Sudo may change the whole file system.
// They may not if the emulator does not run as root.
func NeedRoot(tb testing.TB, sb *sandbox.Sandbox) {
	tb.Helper()
	probe(tb, sb, "root in the sandbox", "touch /usr/local/needs-probe && rm /usr/local/needs-probe")
}

// NeedUsers skips the test unless sb has sudo and can have additional users.
func NeedUsers(tb testing.TB, sb *sandbox.Sandbox) {
	tb.Helper()
	probe(tb, sb, "sudo and useradd in the sandbox", "command -v sudo >/dev/null || { echo no sudo; exit 1; }; useradd needs-probe && userdel needs-probe")
}

// probe skips the test if a script fails that runs with sudo, or if sb is in folder mode,
// which it recognizes by a variable of the emulator.
func probe(tb testing.TB, sb *sandbox.Sandbox, what, script string) {
	tb.Helper()
	if _, ok := probed.Load(script); ok {
		script = "true"
	}
	all := "test -z \"$SANDBOX_BOX_ID\" || { echo 'folder mode, in which the machine would be changed'; exit 1; }; " + script
	done, err := sb.RunCommand(tb.Context(), "sh", []string{"-c", all + " 2>&1"}, &sandbox.CommandOptions{Sudo: true})
	if err != nil {
		needs.Missing(tb, "%s: %v", what, err)
	}
	if done.ExitCode != 0 {
		out, _ := done.Stdout(tb.Context())
		needs.Missing(tb, "%s: %s", what, strings.TrimSpace(out))
	}
	probed.Store(script, nil)
}

// probed has the scripts that have succeeded in a sandbox of this machine. Others only have
// to be isolated, too.
var probed sync.Map
