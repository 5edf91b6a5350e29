// Package needs skips tests, each with its true reason: Missing if something is not
// installed, Other if the test is for other machines, and Long if it is slow.
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
	"sync"
	"testing"
)

// Missing skips the test, since the machine lacks something that can be installed.
func Missing(tb testing.TB, format string, args ...any) {
	tb.Helper()
	tb.Skipf("needs "+format, args...)
}

// Other skips the test on a machine, in a mode or in a process that it is not for.
func Other(tb testing.TB, format string, args ...any) {
	tb.Helper()
	tb.Skipf(format, args...)
}

// Long skips the test unless SANDBOX_SLOW=1 is set. CI sets it each night, and for packages
// that a change touches.
func Long(tb testing.TB, why string) {
	tb.Helper()
	if !Slow() {
		tb.Skipf("runs with SANDBOX_SLOW=1: %s", why)
	}
}

// Slow reports whether SANDBOX_SLOW=1 is set. Tests then run all rows of their tables and
// all rounds.
func Slow() bool { return os.Getenv("SANDBOX_SLOW") == "1" }

// Overlap runs four parallel tests per core, unless -parallel is set, because these tests
// mostly wait for processes. TestMain calls it.
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

// GNU skips the test if this machine's programs, which sandboxes may share, are BusyBox's.
// They lack options that file operations and some tests need.
func GNU(tb testing.TB) {
	tb.Helper()
	if BusyBox() {
		Missing(tb, "GNU's coreutils, findutils, tar and bash, not BusyBox")
	}
}

// BusyBox reports whether this machine's programs are BusyBox's.
var BusyBox = sync.OnceValue(func() bool {
	out, _ := exec.Command("stat", "--version").CombinedOutput() //nolint:noctx // it ends at once
	return strings.Contains(string(out), "BusyBox")
})

// Port returns a free TCP port of the loopback interface, for sandboxes that share this
// machine's network. It is below the range of ports that systems assign to connections, of
// which tests make many.
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
