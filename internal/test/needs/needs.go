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

// Other skips the test on machines, in modes and in processes that it is not for.
func Other(tb testing.TB, format string, args ...any) {
	tb.Helper()
	tb.Skipf(format, args...)
}

// Long skips the test unless SANDBOX_SLOW=1 is set, as it is each night and for the
// packages that a change touches.
func Long(tb testing.TB, why string) {
	tb.Helper()
	if !Slow() {
		tb.Skipf("runs with SANDBOX_SLOW=1: %s", why)
	}
}

// Slow reports whether SANDBOX_SLOW=1 is set: tests then use all rows of their
// tables and all of their rounds.
func Slow() bool { return os.Getenv("SANDBOX_SLOW") == "1" }

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

// GNU skips the test where this machine's programs, which may be those of sandboxes,
// are BusyBox's: they lack what operations on files, and some tests, need.
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
