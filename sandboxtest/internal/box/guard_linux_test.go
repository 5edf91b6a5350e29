package box

import (
	"context"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// openNAT returns a nat, and the other end of its device: the test is the box.
func openNAT(t testing.TB, gate Gate, log *buffer) (*nat, *os.File) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	require.NoError(t, err)
	box := os.NewFile(uintptr(fds[1]), "box")
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	n := newNAT(&wayOut{os.NewFile(uintptr(fds[0]), "device"), listener}, hostResolver, gate, slog.New(slog.NewTextHandler(log, nil)))
	t.Cleanup(func() { assert.NoError(t, n.close()); assert.NoError(t, box.Close()) })
	require.NoError(t, box.SetDeadline(time.Now().Add(20*time.Second)))
	return n, box
}

// faulty is a gate that fails as a mistake in one would: at names, addresses and
// connections of its own.
type faulty struct{ served atomic.Int32 }

var faultyAddr = netip.MustParseAddr("192.0.2.66")

func (*faulty) Lookup(name string) (netip.Addr, bool) {
	if name == "faulty.test" {
		panic("lookup of a faulty name")
	}
	return netip.MustParseAddr("192.0.2.7"), true
}

func (*faulty) Connect(to netip.AddrPort) Verdict {
	if to.Addr() == faultyAddr {
		panic("connection to a faulty address")
	}
	return Inspect
}

func (*faulty) Send(netip.AddrPort) bool { panic("a faulty datagram") }

func (g *faulty) Serve(context.Context, net.Conn, netip.AddrPort) {
	g.served.Add(1)
	panic("a faulty connection")
}

// syn is the first packet of a connection.
func syn(from, to netip.AddrPort) []byte {
	p := newPacket(protoTCP, from, to, tcpHeader, nil)
	p.data[32], p.data[33] = tcpHeader/4<<4, flagSYN
	p.sum()
	return p.data
}

// TestNothingABoxSendsEndsTheProcess: a packet, a name or a connection at which
// the emulator fails is dropped, and told once; what comes after is handled.
func TestNothingABoxSendsEndsTheProcess(t *testing.T) {
	var log buffer
	gate := new(faulty)
	n, box := openNAT(t, gate, &log)
	from := netip.AddrPortFrom(boxAddr, 4000)
	resolver, other := netip.AddrPortFrom(resolverAddr, 53), netip.MustParseAddrPort("192.0.2.7:443")
	send := func(data []byte) {
		t.Helper()
		_, err := box.Write(data)
		require.NoError(t, err)
	}
	get := func() packet {
		t.Helper()
		buf := make([]byte, mtu)
		size, err := box.Read(buf)
		require.NoError(t, err)
		p, ok := parsePacket(buf[:size])
		require.True(t, ok)
		return p
	}
	short := syn(from, other)
	short[2], short[3] = 0, 0 // a length of nothing
	for range 3 {
		send(short)
		send(datagram(from, resolver, dnsQuery("faulty.test")))
		send(datagram(from, other, []byte("x")))
		send(syn(from, netip.AddrPortFrom(faultyAddr, 443)))
		send(datagram(from, resolver, dnsQuery("good.test")))
		assert.Equal(t, resolver, get().src(), "the resolver goes on")
	}
	for i := range uint16(3) {
		// The box's half arrives from the port that stands for it.
		l, err := net.Listen("tcp4", "127.0.0.1:0")
		require.NoError(t, err)
		free := l.Addr().(*net.TCPAddr)
		require.NoError(t, l.Close())
		n.mu.Lock()
		n.lastPort = uint16(free.Port - 1)
		n.mu.Unlock()
		send(syn(netip.AddrPortFrom(boxAddr, 5000+i), other))
		assert.Equal(t, uint16(free.Port), get().src().Port())
		d := net.Dialer{LocalAddr: free}
		conn, err := d.DialContext(t.Context(), "tcp4", n.local.String())
		require.NoError(t, err)
		_, err = conn.Read(make([]byte, 1))
		require.Error(t, err, "it is closed")
		require.NoError(t, conn.Close())
	}
	assert.Equal(t, int32(3), gate.served.Load())
	assert.Equal(t, 4, strings.Count(log.String(), "it was dropped"), log.String())
	for _, what := range []string{"lookup of a faulty name", "connection to a faulty address", "a faulty datagram", "a faulty connection", "guard_linux_test.go:"} {
		assert.Contains(t, log.String(), what)
	}
}

// TestOutputThatCannotBeDelivered: the output of a command goes on.
func TestOutputThatCannotBeDelivered(t *testing.T) {
	eachMode(t, func(t *testing.T, h *Host) {
		b := newBox(t, h, Config{})
		var out buffer
		_, _, res := run(t, b, Spec{Path: "true"})
		assert.Zero(t, res.ExitCode)
		p := start(t, b, Spec{Path: "sh", Args: []string{"-c", "echo faulty; sleep 0.1; echo fine"}, Stdout: writerFunc(func(p []byte) (int, error) {
			if strings.Contains(string(p), "faulty") {
				panic("faulty output")
			}
			return out.Write(p)
		}), Stderr: &out})
		assert.Zero(t, p.Wait().ExitCode)
		assert.Equal(t, "fine\n", out.String())
	})
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// TestPanicOfAThread: who waits for a thread gets a panic as an error.
func TestPanicOfAThread(t *testing.T) {
	fail := func() error { panic("on a thread") }
	for _, err := range []error{onThread(fail), onPool(fail)} {
		require.ErrorContains(t, err, "on a thread")
		require.ErrorContains(t, err, "guard_linux_test.go:")
	}
}

func onPool(f func() error) error {
	pool := &threads{work: make(chan func())}
	defer pool.close()
	if err := pool.add(func() error { return nil }); err != nil {
		return err
	}
	return pool.do(f)
}

// unguarded are the goroutines without a Guard, and why they need none.
var unguarded = map[string]string{
	"guard.go Guard.Go: group.Go": "it is what guards",

	"thread_linux.go onThread: go":                         "tried makes an error of a panic",
	"thread_linux.go threads.add: go":                      "tried makes an error of a panic",
	"thread_linux.go lockAway: go":                         "its callers are listed here themselves",
	"namespace_linux.go namespaceBackend.onBootThread: go": "tried makes an error of a panic",
	"child.go startChild: go":                              "tried makes an error of a panic; then it waits",
	"agent_linux.go runAgent: go":                          "tried makes an error of a panic",
	"machine_linux.go namespaceMachine.boot: go":           "it waits for a process",
	"process.go Box.Start: go":                             "it waits for a process; pipes read its output",
	"host.go Host.Close: wg.Go":                            "it stops and removes boxes",
	"store.go store.clear: s.clearing.Go":                  "it removes files",
	"box.go Box.Extract: pump.Go":                          "it copies what a client has sent",
	"pipes.go pipes.run: go":                               "it copies what a client has sent",
	"remote_linux.go remoteMachine.extract: go":            "it copies what a client has sent",
	"../../sources.go gzipped: wg.Go":                      "it copies what a client has sent",
	"../../interactive.go terminal.run: go":                "it reads what a client sends",
	"../../launch.go session.launchCommand: go":            "it waits for a process; what is left of its output is guarded",
	"../../lifecycle.go store.shutDown: go":                "a Guard calls what looks into a sandbox",
	"../../stubs.go startStub: go":                         "a function of the test: what goes wrong there is the test's to see",
	"../../server.go Server.open: s.background.Go":         "net/http has a recover of its own for each connection",
	"../../server.go Server.spawn: go":                     "net/http has a recover of its own for each connection",
	"../../firewall.go Server.newFirewall: f.serving.Go":   "net/http has a recover of its own for each connection",
}

// TestEveryGoroutineIsGuarded: a goroutine of the emulator is started by a Guard,
// or is listed with the reason why nothing that a box sends is handled there.
func TestEveryGoroutineIsGuarded(t *testing.T) {
	found := map[string]string{}
	for _, dir := range []string{"../..", "."} {
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		require.NoError(t, err)
		for _, name := range files {
			if !strings.HasSuffix(name, "_test.go") {
				maps.Copy(found, goroutines(t, name))
			}
		}
	}
	for where := range found {
		if unguarded[where] == "" {
			t.Errorf("%s\n\tstarts a goroutine (%s) without Guard.Go: a panic there ends the process", where, found[where])
		}
	}
	for where := range unguarded {
		assert.Contains(t, found, where, "listed, but there is no such goroutine")
	}
}

// goroutines are where a file starts goroutines other than by a Guard: the
// function, and what starts it.
func goroutines(t *testing.T, name string) map[string]string {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, name, nil, 0)
	require.NoError(t, err)
	found := map[string]string{}
	for _, decl := range file.Decls {
		fn, ok := decl.(*ast.FuncDecl)
		if !ok {
			continue
		}
		in := fn.Name.Name
		if fn.Recv != nil {
			in = strings.TrimPrefix(typeName(fn.Recv.List[0].Type), "*") + "." + in
		}
		ast.Inspect(fn, func(node ast.Node) bool {
			how := ""
			switch node := node.(type) {
			case *ast.GoStmt:
				how = "go"
			case *ast.CallExpr:
				if sel, ok := node.Fun.(*ast.SelectorExpr); ok && sel.Sel.Name == "Go" && len(node.Args) == 1 {
					how = typeName(sel)
				}
			}
			if how != "" {
				found[name+" "+in+": "+how] = set.Position(node.Pos()).String()
			}
			return true
		})
	}
	return found
}

func typeName(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return "*" + typeName(e.X)
	case *ast.SelectorExpr:
		return typeName(e.X) + "." + e.Sel.Name
	case *ast.Ident:
		return e.Name
	}
	return fmt.Sprintf("%T", e)
}
