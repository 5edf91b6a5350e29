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
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// ErrNone is the error of using a daemon that does not run.
var ErrNone = errors.New("the local emulator does not run")

// Connection keeps the daemon from ending.
type Connection struct {
	Address Address
	// Started says that this call has started the daemon.
	Started bool

	conn net.Conn
}

// Close ends the use of the emulator.
func (c *Connection) Close() error { return c.conn.Close() }

const (
	startTime = time.Minute
	pollTime  = 20 * time.Millisecond
	// maxSocketPath is how long the path of a socket may be everywhere.
	maxSocketPath = 100
)

// reachable returns a path of the socket that is short enough for the system.
func reachable(dir string) (path string, release func(), err error) {
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

// dial connects to the daemon and says what is wanted.
func dial(ctx context.Context, dir, what string) (net.Conn, error) {
	path, release, err := reachable(dir)
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

// Use connects to the daemon of a directory that runs.
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

// Stop ends the daemon, which saves its sandboxes, and waits for that.
func Stop(ctx context.Context, dir string) error {
	conn, err := dial(ctx, dir, askStop)
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	_, _ = io.Copy(io.Discard, conn) // however it ends, it has ended
	return context.Cause(ctx)
}

// Start connects to the daemon of a directory, which it starts if need be by
// running this program with some arguments.
func Start(ctx context.Context, dir string, args ...string) (*Connection, error) {
	if err := private(dir); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	var ended chan error
	started := false
	for {
		c, err := Use(ctx, dir)
		if err == nil {
			c.Started = started
			return c, nil
		}
		if !errors.Is(err, ErrNone) {
			return nil, err
		}
		if ended == nil {
			if ended, err = spawn(dir, args); err != nil {
				return nil, err
			}
			started = true
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("the local emulator does not start: %w\n%s", context.Cause(ctx), lastWords(dir))
		case err := <-ended:
			exit, ok := errors.AsType[*exec.ExitError](err)
			if err != nil && (!ok || exit.ExitCode() != exitInUse) {
				return nil, fmt.Errorf("the local emulator has not started: %w\n%s", err, lastWords(dir))
			}
			ended, started = nil, false // another one starts, or is about to end
			time.Sleep(pollTime)
		case <-time.After(pollTime):
		}
	}
}

// private makes a directory that only its owner can enter.
func private(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	info, err := os.Lstat(dir)
	switch {
	case err != nil:
		return err
	case !info.IsDir() || !mine(info):
		return fmt.Errorf("%s is not a directory of this user", dir)
	case info.Mode().Perm()&0o077 != 0 && runtime.GOOS != "windows":
		return os.Chmod(dir, 0o700)
	}
	return nil
}

// spawn starts a daemon that outlives this process. The channel has its end.
func spawn(dir string, args []string) (chan error, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	log, err := os.OpenFile(filepath.Join(dir, logName), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := exec.Command(program, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = dir, log, log, detached()
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	return ended, nil
}

func lastWords(dir string) string {
	data, _ := os.ReadFile(filepath.Join(dir, logName)) // without it there are none
	return strings.TrimSpace(string(data[max(0, len(data)-2000):]))
}
