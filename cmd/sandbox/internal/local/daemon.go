// Package local runs an emulator in the background, for all processes of a user:
// commands, ports and terminals of its sandboxes outlive the process that has
// started them. An emulator in each process would have to copy the files of a
// sandbox for each command in folder mode, which takes seconds.
//
// The daemon listens on a socket in a directory that only its user can enter. A
// client sends one line, gets one back, and holds the connection for as long as it
// uses the emulator. The address and the token are sent only over this socket and
// stored nowhere: otherwise another user could put a server at the address of an
// emulator that has ended.
package local

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/gofrs/flock"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/sandboxtest"
)

const (
	socketName = "socket"
	// LogName is the name of the daemon's log in its directory.
	LogName  = "log"
	lockName = "lock"
	// exitInUse is the exit code of a daemon whose directory another daemon uses.
	exitInUse = 75
	// IdleTime is how long a daemon without clients and running sandboxes waits before it
	// ends.
	IdleTime = 10 * time.Minute
	// requestTimeout limits how long a client may take to send its request.
	requestTimeout = 10 * time.Second
)

// Address tells a client how to reach the emulator.
type Address struct {
	URL       string `json:"url"`
	Token     string `json:"token"`
	TeamID    string `json:"teamId"`
	ProjectID string `json:"projectId"`
	Mode      string `json:"mode"`
	Version   string `json:"version"`
	PID       int    `json:"pid"`
}

// The requests of clients.
const (
	askUse  = "use"
	askStop = "stop"
)

type daemon struct {
	server   *sandboxtest.Server
	listener net.Listener
	address  Address
	idle     time.Duration
	socket   string

	mu      sync.Mutex
	clients int
	last    time.Time // when there last was a client or a running sandbox
	ending  bool
	end     chan struct{} // closed to end the daemon
}

// Serve runs the daemon of a directory until it is stopped or idle. The emulator's state
// is in another directory. It returns the exit code of the process.
func Serve(dir, state, version string, idle time.Duration) int {
	lock := flock.New(filepath.Join(dir, lockName), flock.SetPermissions(0o600))
	locked, err := lock.TryLock()
	if err == nil && !locked {
		return exitInUse
	}
	if err == nil {
		err = errors.Join(serve(dir, state, version, idle), lock.Unlock())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func serve(dir, state, version string, idle time.Duration) error {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	signal.Ignore(syscall.SIGHUP)
	server, err := sandboxtest.NewServer(&sandboxtest.Options{
		Dir: state, Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError})),
	})
	if err != nil {
		return err
	}
	c := server.Credentials()
	d := &daemon{
		server: server, idle: idle, socket: filepath.Join(dir, socketName), last: time.Now(), end: make(chan struct{}),
		address: Address{
			URL: server.URL, Token: c.Token, TeamID: c.TeamID, ProjectID: c.ProjectID, Mode: string(server.Mode()), Version: version, PID: os.Getpid(),
		},
	}
	if err := os.Truncate(filepath.Join(dir, LogName), 0); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return errors.Join(err, server.Close())
	}
	// This process has the lock, so a socket that exists belongs to a daemon that was
	// killed.
	if err := os.Remove(d.socket); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return errors.Join(err, server.Close())
	}
	path, release, err := socketPath(dir)
	if err != nil {
		return errors.Join(err, server.Close())
	}
	defer release()
	if d.listener, err = net.Listen("unix", path); err == nil {
		err = os.Chmod(d.socket, 0o600)
	}
	if err != nil {
		return errors.Join(err, server.Close())
	}
	go d.accept()
	tick := time.NewTicker(max(idle/10, 100*time.Millisecond))
	defer tick.Stop()
	for ending := false; !ending; {
		select {
		case <-signals:
			ending = true
		case <-d.end:
			ending = true
		case <-tick.C:
			ending = d.isIdle()
		}
	}
	d.mu.Lock()
	d.ending = true
	d.mu.Unlock()
	d.listener.Close() // this removes the socket, so that the next client starts another daemon
	_ = os.Remove(d.socket)
	return server.Close()
}

// isIdle reports whether the emulator has been unused for long enough, or its directory
// was removed, so that nobody can use it.
func (d *daemon) isIdle() bool {
	if _, err := os.Lstat(d.socket); err != nil {
		return true
	}
	running := d.running()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.clients > 0 || running {
		d.last = time.Now()
	}
	if !d.ending && time.Since(d.last) >= d.idle {
		d.ending = true
		return true
	}
	return false
}

func (d *daemon) running() bool {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for i, err := range d.server.Client().List(ctx, nil) {
		if err != nil || !ended(i.Status) {
			return true
		}
	}
	return false
}

func (d *daemon) accept() {
	for {
		conn, err := d.listener.Accept()
		if err != nil {
			return
		}
		go d.handle(conn)
	}
}

// handle sends a client the address, and waits until the client disconnects.
func (d *daemon) handle(conn net.Conn) {
	defer conn.Close()
	_ = conn.SetReadDeadline(time.Now().Add(requestTimeout)) // can't fail: a socket supports deadlines
	r := bufio.NewReader(conn)
	ask, err := r.ReadString('\n')
	if err != nil {
		return
	}
	_ = conn.SetReadDeadline(time.Time{})
	switch strings.TrimSpace(ask) {
	case askUse:
		d.mu.Lock()
		if d.ending {
			d.mu.Unlock()
			return
		}
		d.clients++
		d.mu.Unlock()
		if json.NewEncoder(conn).Encode(d.address) == nil {
			_, _ = r.ReadByte() // wait until the client closes the connection, or ends
		}
		d.mu.Lock()
		d.clients--
		d.last = time.Now()
		d.mu.Unlock()
	case askStop:
		if err := d.stop(); err != nil {
			_ = json.NewEncoder(conn).Encode(stopFailure{err.Error()}) // the client may have gone
			return
		}
		_, _ = r.ReadByte() // the client waits until this process ends, which closes the connection
	}
}

// stopFailure is the answer to a stop request if the daemon continues to run.
type stopFailure struct {
	Error string `json:"error"`
}

// stop saves the sandboxes and then ends the daemon. If the files of a sandbox can't be
// saved, that sandbox and the daemon continue to run, because the files exist nowhere else.
func (d *daemon) stop() error {
	d.mu.Lock()
	if d.ending {
		d.mu.Unlock()
		return nil
	}
	d.ending = true // refuse new clients from now on
	d.mu.Unlock()
	err := d.save(context.Background())
	d.mu.Lock()
	defer d.mu.Unlock()
	if err != nil {
		d.ending = false
		return err
	}
	close(d.end)
	return nil
}

func (d *daemon) save(ctx context.Context) error {
	client := d.server.Client()
	var errs []error
	for i, err := range client.List(ctx, nil) {
		if err != nil {
			return err
		}
		if ended(i.Status) {
			continue
		}
		sb, err := client.Get(ctx, i.Name, &sandbox.GetOptions{NoResume: true})
		if err == nil {
			_, err = sb.Stop(ctx, nil)
		}
		if err != nil && !errors.Is(err, sandbox.ErrNotFound) {
			errs = append(errs, fmt.Errorf("%s: %w", i.Name, err))
		}
	}
	return errors.Join(errs...)
}

// ended reports whether a sandbox with the status has nothing left to save.
func ended(s sandbox.Status) bool {
	return s == sandbox.StatusStopped || s == sandbox.StatusFailed || s == sandbox.StatusAborted
}
