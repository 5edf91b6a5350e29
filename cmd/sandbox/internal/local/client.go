package local

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"time"
)

// ErrNone is the error of using a daemon that does not run.
var ErrNone = errors.New("the local emulator is not running")

// Connection is a connection to the daemon, which does not end while a client is connected.
type Connection struct {
	Address Address
	// Started says whether this call has started the daemon.
	Started bool

	conn   net.Conn
	closed atomic.Bool
}

// Close disconnects from the daemon.
func (c *Connection) Close() error {
	c.closed.Store(true)
	return c.conn.Close()
}

// ErrGone is the error of using a daemon that has ended.
var ErrGone = errors.New("the local emulator has ended, and with it what ran in its sandboxes")

// OnLost calls a function when the daemon ends before Close. It may be called once.
func (c *Connection) OnLost(lost func()) {
	go func() {
		_, _ = c.conn.Read(make([]byte, 1)) // the daemon sends nothing else
		if !c.closed.Load() {
			lost()
		}
	}()
}

const (
	startTimeout = time.Minute
	pollInterval = 20 * time.Millisecond
	// maxAnswer limits how much of a daemon's answer is read.
	maxAnswer = 64 << 10
	// maxSocketPath is the length of a socket's path that every system accepts.
	maxSocketPath = 100
)

// socketPath returns a path of the socket that is short enough for the system. The path is
// valid until release is called.
func socketPath(dir string) (path string, release func(), err error) {
	path = filepath.Join(dir, socketName)
	if len(path) <= maxSocketPath {
		return path, func() {}, nil
	}
	if runtime.GOOS != "linux" {
		return "", nil, fmt.Errorf("%s is too long a path for a socket; XDG_STATE_HOME may name a shorter one", path)
	}
	f, err := os.Open(dir)
	if err != nil {
		return "", nil, err
	}
	return fmt.Sprintf("/proc/self/fd/%d/%s", f.Fd(), socketName), func() { f.Close() }, nil
}

// dial connects to the daemon and sends the request what.
func dial(ctx context.Context, dir, what string) (net.Conn, error) {
	path, release, err := socketPath(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ErrNone
	}
	if err != nil {
		return nil, err
	}
	defer release()
	conn, err := new(net.Dialer).DialContext(ctx, "unix", path)
	if err != nil {
		return nil, errors.Join(ErrNone, err)
	}
	if _, err := io.WriteString(conn, what+"\n"); err != nil {
		conn.Close()
		return nil, errors.Join(ErrNone, err) // it has just ended
	}
	return conn, nil
}

// Use connects to the running daemon of a directory.
func Use(ctx context.Context, dir string) (*Connection, error) {
	conn, err := dial(ctx, dir, askUse)
	if err != nil {
		return nil, err
	}
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	c := &Connection{conn: conn}
	line, err := bufio.NewReader(conn).ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &c.Address)
	}
	if err != nil {
		conn.Close()
		return nil, errors.Join(ErrNone, err) // it has just ended
	}
	return c, nil
}

// ErrUnsaved is the error of [Stop] if the daemon can't save its sandboxes. The daemon
// continues to run.
var ErrUnsaved = errors.New("the local emulator keeps running, because its sandboxes can't be saved")

// Stop makes the daemon save its sandboxes and end, and waits until it has ended.
func Stop(ctx context.Context, dir string) error {
	conn, err := dial(ctx, dir, askStop)
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	answer, _ := io.ReadAll(io.LimitReader(conn, maxAnswer)) // the daemon answers only if it does not end
	if err := context.Cause(ctx); err != nil {
		return err
	}
	var why stopFailure
	if json.Unmarshal(answer, &why) == nil && why.Error != "" {
		return fmt.Errorf("%w: %s", ErrUnsaved, why.Error)
	}
	return nil
}
