// Package needs skips tests. It has a function for each kind of reason: Missing if
// something is not installed, Other if the test is for other machines, and Long if the test
// is slow.
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

// Missing skips the test, because the machine lacks something that can be installed.
func Missing(tb testing.TB, format string, args ...any) {
	tb.Helper()
	tb.Skipf("needs "+format, args...)
}

// Other skips the test, because it is for another kind of machine, mode or process.
func Other(tb testing.TB, format string, args ...any) {
	tb.Helper()
	tb.Skipf(format, args...)
}

// Long skips the test unless SANDBOX_SLOW=1 is set. CI sets it each night for all packages,
// and otherwise for the packages that a change touches.
func Long(tb testing.TB, why string) {
	tb.Helper()
	if !Slow() {
		tb.Skipf("runs with SANDBOX_SLOW=1: %s", why)
	}
}

// Slow reports whether SANDBOX_SLOW=1 is set. If it is not, tests skip some rows of their
// tables, and run fewer rounds.
func Slow() bool { return os.Getenv("SANDBOX_SLOW") == "1" }

// Overlap allows four parallel tests per core, unless the flag -parallel is set. Tests with
// an emulator mostly wait for processes. TestMain calls Overlap.
func Overlap() {
	flag.Parse()
	chosen := false
	flag.Visit(func(f *flag.Flag) { chosen = chosen || f.Name == "test.parallel" })
	if !chosen {
		_ = flag.Set("test.parallel", strconv.Itoa(4*runtime.GOMAXPROCS(0))) // can't fail, because each test program has this flag
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

// GNU skips the test if this machine has BusyBox instead of GNU's programs. Sandboxes may
// share the machine's programs, and BusyBox lacks options that file operations need.
func GNU(tb testing.TB) {
	tb.Helper()
	if BusyBox() {
		Missing(tb, "GNU's coreutils, findutils, tar and bash, not BusyBox")
	}
}

// BusyBox reports whether this machine has BusyBox instead of GNU's programs.
var BusyBox = sync.OnceValue(func() bool {
	out, _ := exec.Command("stat", "--version").CombinedOutput() //nolint:noctx // the program ends at once
	return strings.Contains(string(out), "BusyBox")
})

// Port returns a free TCP port of the loopback interface, for sandboxes that share this
// machine's network. The port is below the range from which systems choose the ports of
// connections, because tests make many connections.
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
