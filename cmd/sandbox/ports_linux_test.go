package main

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/internal/test/needs"
	"github.com/go-vercel/sandbox/sandboxtest"
)

// browser replaces the browser by a program that records the page to open. The returned
// function waits for that page.
func (d *workspace) browser() (opened func() string) {
	d.t.Helper()
	bin, note := d.t.TempDir(), filepath.Join(d.t.TempDir(), "opened")
	script := "#!/bin/sh\nprintf %s \"$1\" > '" + note + ".part' && mv '" + note + ".part' '" + note + "'\n"
	require.NoError(d.t, os.WriteFile(filepath.Join(bin, "xdg-open"), []byte(script), 0o755))
	d.env = append(d.env, "PATH="+bin+":"+os.Getenv("PATH"))
	return func() string {
		d.t.Helper()
		var text []byte
		require.Eventually(d.t, func() bool {
			var err error
			text, err = os.ReadFile(note)
			return err == nil
		}, time.Minute, 5*time.Millisecond, "nothing was opened")
		return string(text)
	}
}

// echoServer serves a free port in the sandbox and echoes what it receives. It first
// prints the port.
const echoServer = `
import socket, threading
s = socket.create_server(("127.0.0.1", 0)); print(s.getsockname()[1], flush=True)
def serve(c):
    while d := c.recv(65536): c.sendall(d)
    c.close()
while True: threading.Thread(target=serve, args=(s.accept()[0],), daemon=True).start()
`

// serve starts a program in the sandbox c and returns the first line of its output.
func (d *workspace) serve(args ...string) string {
	d.t.Helper()
	id := strings.TrimSpace(d.ok(append([]string{"exec", "-d", "c", "--"}, args...)...))
	return d.waitForLog(id, ".")
}

// background starts the program and returns a scanner of its standard error.
func (d *workspace) background(args ...string) (*exec.Cmd, *bufio.Scanner) {
	d.t.Helper()
	cmd := d.command(d.t.Context(), args...)
	stderr, err := cmd.StderrPipe()
	require.NoError(d.t, err)
	require.NoError(d.t, cmd.Start())
	return cmd, bufio.NewScanner(stderr)
}

// interrupt interrupts a program and checks its exit code.
func interrupt(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	require.NoError(t, cmd.Process.Signal(syscall.SIGINT))
	_ = cmd.Wait() // ProcessState has the exit code
	assert.Equal(t, 130, cmd.ProcessState.ExitCode())
}

// nextLine returns the next line. It fails the test if there is none.
func nextLine(t *testing.T, lines *bufio.Scanner) string {
	t.Helper()
	require.True(t, lines.Scan(), "no more lines: %v", lines.Err())
	return lines.Text()
}

func TestPortForward(t *testing.T) {
	t.Parallel()
	needs.Programs(t, "python3", "bash", "stty")
	d := newWorkspace(t, nil)
	d.ok("create", "--name", "c")
	port := d.serve("python3", "-c", echoServer)
	cmd, lines := d.background("port-forward", "c", ":"+port, ":1")
	var local []string
	for _, remote := range []string{port, "1"} {
		m := regexp.MustCompile(`^Forwarding (127\.0\.0\.1:\d+) -> c:` + remote + `$`).FindStringSubmatch(nextLine(t, lines))
		require.NotNil(t, m)
		local = append(local, m[1])
	}
	// Use two connections at the same time. Each transfers every byte.
	sent := make([]byte, 1024)
	for i := range sent {
		sent[i] = byte(i)
	}
	var conns []net.Conn
	for range 2 {
		c, err := net.Dial("tcp", local[0])
		require.NoError(t, err)
		defer c.Close()
		conns = append(conns, c)
	}
	for _, c := range conns {
		_, err := c.Write(sent)
		require.NoError(t, err)
	}
	for _, c := range conns {
		got := make([]byte, len(sent))
		_, err := io.ReadFull(c, got)
		require.NoError(t, err)
		assert.Equal(t, sent, got)
	}
	// If nothing listens, the connection ends and a message says so.
	c, err := net.Dial("tcp", local[1])
	require.NoError(t, err)
	defer c.Close()
	assert.Contains(t, nextLine(t, lines), "nothing listens on port 1 of c")
	_, err = c.Read(make([]byte, 1))
	assert.Error(t, err)
	interrupt(t, cmd)
	// Only the server remains in the sandbox.
	assert.Eventually(t, func() bool { return len(strings.Fields(d.ok("ps", "-q", "c"))) == 1 }, time.Minute, 20*time.Millisecond)
}

// TestPortForwardMistakes: mistakes are reported before any request.
func TestPortForwardMistakes(t *testing.T) {
	t.Parallel()
	d := newWorkspace(t, nil)
	d.ok("create", "--name", "c")
	d.seen()
	for _, args := range [][]string{{"c"}, {"c", "0"}, {"c", "x"}, {"c", "1:2:3"}, {"c", "70000"}, {"c", ":"}} {
		got := d.run("", append([]string{"port-forward"}, args...)...)
		assert.Equal(t, 2, got.code, "%v: %s", args, got.stderr)
	}
	assert.Empty(t, d.seen())
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	_, number, err := net.SplitHostPort(taken.Addr().String())
	require.NoError(t, err)
	got := d.run("", "port-forward", "c", number+":3000")
	assert.Equal(t, 1, got.code)
	assert.Contains(t, got.stderr, "address already in use")
}

// webServer serves a published port of the sandbox c.
func webServer(t *testing.T) (d *workspace, port string) {
	t.Helper()
	needs.Programs(t, "python3")
	d, port = newWorkspace(t, nil), strconv.Itoa(needs.Port(t))
	d.ok("create", "--name", "c")
	d.write("index.html", "served\n")
	d.ok("cp", "index.html", "c:/vercel/web/")
	d.ok("exec", "-d", "c", "-w", "/vercel/web", "--", "python3", "-m", "http.server", port)
	d.seen()
	d.ok("url", "--publish", "--wait", "c", port)
	for _, r := range d.seen() {
		if r.Operation == sandboxtest.UpdateSandbox {
			assert.JSONEq(t, `{"ports":[`+port+`]}`, string(r.Body), "the request omits the port of terminals")
		}
	}
	return d, port
}

func TestPortForwardHTTP(t *testing.T) {
	t.Parallel()
	d, port := webServer(t)
	cmd, lines := d.background("port-forward", "--http", "c", ":"+port)
	m := regexp.MustCompile(`127\.0\.0\.1:\d+`).FindString(nextLine(t, lines))
	require.NotEmpty(t, m)
	response, err := http.Get("http://" + m + "/")
	require.NoError(t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	assert.Equal(t, "served\n", string(body))
	interrupt(t, cmd)
	got := d.run("", "port-forward", "--http", "c", ":4000")
	assert.Equal(t, 3, got.code)
	assert.Contains(t, got.stderr, "sandbox url --publish c 4000")
}
