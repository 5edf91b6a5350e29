// Package tunnel carries bytes to and from a program in a sandbox through the
// terminal protocol: 8-bit clean, in both directions at the same time, and
// without a published port. It needs bash and stty in the sandbox.
package tunnel

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/go-vercel/sandbox"
)

// ready comes from the sandbox when the terminal passes every byte as it is and
// the other end is there.
const ready = "\x01sandbox-tunnel-ready\x02"

// rawTerminal makes the terminal pass bytes as they are.
const rawTerminal = `stty raw -echo -onlcr 2>/dev/null; `

// ErrRefused reports that nothing listens on the port.
var ErrRefused = errors.New("connection refused in the sandbox")

// exitRefused is the exit code of the script for a port that nothing listens on.
const exitRefused = 111

// dialScript joins its terminal to a port of the loopback interface.
const dialScript = rawTerminal + `exec 3<>"/dev/tcp/127.0.0.1/$1" || exit 111
printf '\001sandbox-tunnel-ready\002'
cat <&0 >&3 &
cat <&3
kill $! 2>/dev/null`

// runScript runs a command line with the terminal as its standard input and
// output. Standard error goes to a file, which is named first.
const runScript = rawTerminal + `exec 2>"$1" || exit 125
printf '\001sandbox-tunnel-ready\002'
bash -c "$2"`

// Conn is a connection to a program in a sandbox.
type Conn struct {
	shell *sandbox.Shell
	rest  bytes.Buffer // what came behind the mark
}

func (c *Conn) Read(p []byte) (int, error) {
	if c.rest.Len() > 0 {
		return c.rest.Read(p)
	}
	return c.shell.Read(p)
}

func (c *Conn) Write(p []byte) (int, error) { return c.shell.Write(p) }

// Close ends the program.
func (c *Conn) Close() error { return c.shell.Close() }

// Wait returns the exit code of the program, whose output has to be read first.
func (c *Conn) Wait(ctx context.Context) (int, error) { return c.shell.Wait(ctx) }

// Opener is a sandbox.
type Opener interface {
	Shell(ctx context.Context, opts *sandbox.ShellOptions) (*sandbox.Shell, error)
}

// Dial connects to a port of the sandbox's loopback interface. The caller closes
// the connection; it ends with ctx, too.
func Dial(ctx context.Context, sb Opener, port int) (*Conn, error) {
	return open(ctx, sb, dialScript, strconv.Itoa(port))
}

// Run runs a command line of bash with standard error in a file of the sandbox.
func Run(ctx context.Context, sb Opener, stderrFile, line string) (*Conn, error) {
	return open(ctx, sb, runScript, stderrFile, line)
}

func open(ctx context.Context, sb Opener, script string, args ...string) (*Conn, error) {
	shell, err := sb.Shell(ctx, &sandbox.ShellOptions{Command: "bash", Args: append([]string{"-c", script, "bash"}, args...)})
	if err != nil {
		return nil, err
	}
	c := &Conn{shell: shell}
	if err := c.awaitReady(ctx); err != nil {
		shell.Close()
		return nil, err
	}
	return c, nil
}

// maxPreamble bounds what may come before the mark.
const maxPreamble = 64 << 10

func (c *Conn) awaitReady(ctx context.Context) error {
	var seen []byte
	buf := make([]byte, 4096)
	for len(seen) < maxPreamble {
		n, err := c.shell.Read(buf)
		seen = append(seen, buf[:n]...)
		if i := bytes.Index(seen, []byte(ready)); i >= 0 {
			c.rest.Write(seen[i+len(ready):])
			return nil
		}
		if errors.Is(err, io.EOF) {
			code, err := c.shell.Wait(ctx)
			if err != nil {
				return err
			}
			if code == exitRefused {
				return ErrRefused
			}
			return fmt.Errorf("the tunnel ended with exit code %d: %s", code, bytes.TrimSpace(seen))
		}
		if err != nil {
			return err
		}
	}
	return errors.New("the tunnel did not begin")
}

// lingering is how long the sandbox may be silent after the local end has said
// all: the terminal protocol can't say so there.
const lingering = 5 * time.Second

// Join copies between two connections until the sandbox's end is done, or the
// local one is and nothing more comes.
func Join(local net.Conn, remote *Conn) error {
	defer remote.Close()
	defer local.Close()
	var (
		mu    sync.Mutex
		said  bool
		timer = time.AfterFunc(1<<62, func() { remote.Close() })
	)
	defer timer.Stop()
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		_, err := io.Copy(remote, local)
		mu.Lock()
		defer mu.Unlock()
		said = true
		if err != nil {
			remote.Close()
			return
		}
		timer.Reset(lingering)
	})
	_, err := io.Copy(local, readerFunc(func(p []byte) (int, error) {
		n, err := remote.Read(p)
		mu.Lock()
		if said && n > 0 {
			timer.Reset(lingering)
		}
		mu.Unlock()
		return n, err
	}))
	local.Close()
	return err
}

type readerFunc func(p []byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }
