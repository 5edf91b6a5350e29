// Package needs skips tests on machines that lack what they need, with a reason
// that names it. With SANDBOX_TEST_NEEDS=all in the environment, as in CI,
// where everything is installed, a test fails instead: nothing is skipped
// unnoticed.
package needs

import (
	"flag"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
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

// Overlap lets four parallel tests to a core run at a time, unless -parallel
// says otherwise: most of the time these tests wait for processes. It is called
// by TestMain.
func Overlap() {
	flag.Parse()
	chosen := false
	flag.Visit(func(f *flag.Flag) { chosen = chosen || f.Name == "test.parallel" })
	if !chosen {
		_ = flag.Set("test.parallel", strconv.Itoa(4*runtime.GOMAXPROCS(0))) // always there in a test
	}
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

// Port returns a TCP port of this machine's loopback interface that nothing
// listens on, for sandboxes that share the network with it. It is below those
// that systems give to connections, of which tests make many.
func Port(tb testing.TB) int {
	tb.Helper()
	for range 1000 {
		port := 10_000 + rand.IntN(20_000)
		if l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port))); err == nil {
			_ = l.Close()
			return port
		}
	}
	Missing(tb, "a free port")
	return 0
}

// Box skips the test unless sb has files of its own: in folder mode what a test
// does outside of the sandbox's folder would be done to the machine.
func Box(tb testing.TB, sb *sandbox.Sandbox) {
	tb.Helper()
	probe(tb, sb, "a sandbox whose files are not the machine's", "true")
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

// probe runs a script with sudo where a box stands between it and the machine:
// in folder mode commands have a variable of the emulator's.
func probe(tb testing.TB, sb *sandbox.Sandbox, what, script string) {
	tb.Helper()
	script = "test -z \"$SANDBOX_BOX_ID\" || { echo 'folder mode, in which the machine would be changed'; exit 1; }; " + script
	done, err := sb.RunCommand(tb.Context(), "sh", []string{"-c", script + " 2>&1"}, &sandbox.CommandOptions{Sudo: true})
	if err != nil {
		Missing(tb, "%s: %v", what, err)
	}
	if done.ExitCode != 0 {
		out, _ := done.Stdout(tb.Context())
		Missing(tb, "%s: %s", what, strings.TrimSpace(out))
	}
}
