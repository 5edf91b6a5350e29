package project_test

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/internal/test/needs"
	"github.com/go-vercel/sandbox/internal/test/testkit"
)

// withoutDoors are folders of programs that users don't install: examples, tools and
// what tests run. Their listeners are not in docs/security.md.
var withoutDoors = []string{"docs", "examples", "durable/examples", "perf", "testdata", "internal/test/conformance", "internal/test/needs", "internal/test/testkit"}

// TestEveryDoorIsDescribed: each file that opens a listener has a row in
// docs/security.md, with its address, who may enter, and a test that attacks it;
// and each row is of a file that does. Without it a listener was open to other users
// of the machine, and nobody had looked.
func TestEveryDoorIsDescribed(t *testing.T) {
	t.Parallel()
	atRoot(t)
	opened := map[string]string{}
	require.NoError(t, filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		name = filepath.ToSlash(name)
		for _, folder := range append(withoutDoors, ".git", "node_modules") {
			if err == nil && d.IsDir() && (name == folder || d.Name() == folder) {
				return filepath.SkipDir
			}
		}
		if err != nil || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return err
		}
		for _, call := range listeners(t, name) {
			opened[name] = call
		}
		return nil
	}))
	require.NotEmpty(t, opened)
	text, err := os.ReadFile("docs/security.md")
	require.NoError(t, err)
	_, table, found := strings.Cut(string(text), "\n## Doors\n")
	require.True(t, found)
	table, _, _ = strings.Cut(table, "\n## ")
	described := map[string]bool{}
	for _, m := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\|(.*)\\|$").FindAllStringSubmatch(table, -1) {
		described[m[1]] = true
		cells := strings.Split(m[2], " | ")
		require.Len(t, cells, 4, m[1])
		for _, cell := range cells {
			assert.NotEmpty(t, strings.TrimSpace(cell), "docs/security.md, Doors, %s: an empty cell: say it", m[1])
		}
		assert.Regexp(t, "`(Test|Fuzz)\\w+`", cells[3], "docs/security.md, Doors, %s: no test attacks it: name one in the last cell", m[1])
		assert.NotEmpty(t, opened[m[1]], "%s opens no listener any longer: remove its row from docs/security.md, Doors", m[1])
	}
	for name, call := range opened {
		assert.True(t, described[name], "%s listens (%s): describe it in docs/security.md under Doors, with a test that attacks it", name, call)
	}
}

// listeners returns the calls of a file that open a listener.
func listeners(t *testing.T, name string) (calls []string) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
	require.NoError(t, err)
	ast.Inspect(file, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok {
			pkg, function := callee(call)
			if strings.HasPrefix(function, "Listen") || pkg == "httptest" && strings.HasPrefix(function, "NewServer") || pkg == "httptest" && function == "NewTLSServer" {
				calls = append(calls, pkg+"."+function)
			}
		}
		return true
	})
	return calls
}

// TestDoorsAreLocal runs an emulator with a sandbox that publishes ports: every
// socket of this process that listens does so on the loopback interface.
func TestDoorsAreLocal(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		needs.Missing(t, "/proc/net/tcp")
	}
	srv, sb := testkit.Start(t, &sandbox.CreateOptions{Ports: []int{3000, 3001}})
	require.NotEmpty(t, sb.Routes())
	sockets := map[string]bool{}
	fds, err := filepath.Glob("/proc/self/fd/*")
	require.NoError(t, err)
	for _, fd := range fds {
		link, _ := os.Readlink(fd) // it may have been closed
		sockets[strings.TrimSuffix(strings.TrimPrefix(link, "socket:["), "]")] = true
	}
	var found []netip.AddrPort
	for _, table := range []string{"/proc/self/net/tcp", "/proc/self/net/tcp6"} {
		text, err := os.ReadFile(table)
		if os.IsNotExist(err) {
			continue
		}
		require.NoError(t, err)
		for line := range strings.Lines(string(text)) {
			const listening = "0A"
			if f := strings.Fields(line); len(f) > 9 && f[3] == listening && sockets[f[9]] {
				found = append(found, address(t, f[1]))
			}
		}
	}
	assert.GreaterOrEqual(t, len(found), 3, "the API and two ports of %s: %v", srv.URL, found)
	for _, a := range found {
		assert.True(t, a.Addr().IsLoopback(), "listens on %v", a)
	}
}

// address reads an address of /proc/net/tcp: words of 32 bits in the order of
// this machine.
func address(t *testing.T, text string) netip.AddrPort {
	t.Helper()
	host, port, _ := strings.Cut(text, ":")
	data, err := hex.DecodeString(host)
	require.NoError(t, err)
	for i := 0; i+4 <= len(data); i += 4 {
		binary.NativeEndian.PutUint32(data[i:], binary.BigEndian.Uint32(data[i:]))
	}
	ip, ok := netip.AddrFromSlice(data)
	require.True(t, ok)
	var number uint16
	_, err = fmt.Sscanf(port, "%X", &number)
	require.NoError(t, err)
	return netip.AddrPortFrom(ip, number)
}
