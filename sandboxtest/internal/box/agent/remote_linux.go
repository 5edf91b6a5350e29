package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/go-vercel/sandbox/internal/inherited"
	"github.com/go-vercel/sandbox/sandboxtest/internal/box/backend"
	"github.com/go-vercel/sandbox/sandboxtest/internal/box/namespaces"
	"github.com/go-vercel/sandbox/sandboxtest/internal/firewall"
)

// agentProcess is an agent: this program, started again in a user namespace. Hosts that
// are opened with the same environment share it.
type agentProcess struct {
	conn   *net.UnixConn
	cmd    *exec.Cmd
	output *os.File // what it prints: nothing, unless it fails

	mu sync.Mutex // held while a message is written

	// Guarded by agents.mu.
	hosts  int // that use it
	opened int // all hosts that have used it
}

// agentLinger is how long an agent without hosts stays. Starting one takes longer than
// opening a host, and programs often open hosts one after another.
const agentLinger = 5 * time.Second

// agents are this process's agents, by their environment.
var agents struct {
	mu   sync.Mutex
	open map[string]*agentProcess
}

// acquireAgent returns an agent with this process's environment. The caller releases it.
func acquireAgent() (*agentProcess, error) {
	env := os.Environ()
	key := strings.Join(env, "\x00")
	agents.mu.Lock()
	defer agents.mu.Unlock()
	a := agents.open[key]
	if a != nil && !a.alive() {
		a.retireLocked()
		a = nil
	}
	if a == nil {
		var err error
		if a, err = startAgent(env); err != nil {
			return nil, err
		}
		if agents.open == nil {
			agents.open = make(map[string]*agentProcess)
		}
		agents.open[key] = a
	}
	a.hosts++
	a.opened++
	return a, nil
}

func startAgent(env []string) (*agentProcess, error) {
	fd, err := unix.MemfdCreate("agent", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	output := os.NewFile(uintptr(fd), "agent")
	ours, theirs, err := socketPair()
	if err != nil {
		return nil, errors.Join(err, output.Close())
	}
	cmd := &exec.Cmd{
		Path: "/proc/self/exe", Args: []string{agentName}, Env: env, Dir: "/", ExtraFiles: []*os.File{theirs}, Stderr: output,
		SysProcAttr: &syscall.SysProcAttr{
			Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWNS,
			UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}},
			Setsid:      true, // so that it gets no Ctrl-C
		},
	}
	inherited.Close(cmd)
	err = backend.OnThread(func() error {
		backend.NewSessionKeyring()
		return cmd.Start()
	})
	_ = theirs.Close()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("make a user namespace: %w", err), ours.Close(), output.Close())
	}
	return &agentProcess{conn: ours, cmd: cmd, output: output}, nil
}

// alive reports whether the agent still has its end of the connection open. The agent never
// sends on this connection.
func (a *agentProcess) alive() bool {
	raw, err := a.conn.SyscallConn()
	if err != nil {
		return false
	}
	alive := false
	err = raw.Control(func(fd uintptr) {
		_, _, err := unix.Recvfrom(int(fd), make([]byte, 1), unix.MSG_PEEK|unix.MSG_DONTWAIT)
		alive = err == unix.EAGAIN || err == unix.EINTR
	})
	return err == nil && alive
}

// release releases the agent. If the agent has failed, release returns what it has
// printed.
func (a *agentProcess) release() string {
	agents.mu.Lock()
	defer agents.mu.Unlock()
	text := make([]byte, 8192)
	n, _ := a.output.ReadAt(text, 0)
	a.hosts--
	switch {
	case a.hosts > 0:
	case !a.alive():
		a.retireLocked()
	default:
		// Never stop this timer: a test in a synctest bubble must not touch another
		// bubble's timer.
		opened := a.opened
		time.AfterFunc(agentLinger, func() {
			agents.mu.Lock()
			defer agents.mu.Unlock()
			if a.opened == opened {
				a.retireLocked()
			}
		})
	}
	return string(text[:n])
}

// retireLocked keeps further hosts from using the agent. If no host uses it, retireLocked
// ends it.
func (a *agentProcess) retireLocked() {
	maps.DeleteFunc(agents.open, func(_ string, b *agentProcess) bool { return a == b })
	if a.hosts > 0 || a.cmd == nil {
		return
	}
	_ = a.conn.Close()
	_ = a.cmd.Wait() // it ends with its connection
	_ = a.output.Close()
	a.cmd = nil
}

// remoteBackend is a backend that passes its work to an agent.
type remoteBackend struct {
	agent *agentProcess
	dir   string
	log   *slog.Logger
	tun   bool // each sandbox has its own network
}

// NewBackend returns a backend that works through an agent. tried is set if a sandbox has
// run on this machine before.
func NewBackend(dir string, log *slog.Logger, seen backend.Visible, tried bool) (backend.Backend, error) {
	agent, err := acquireAgent()
	if err != nil {
		return nil, err
	}
	r := &remoteBackend{agent: agent, dir: dir, log: log}
	resp, _, err := r.call(&request{Op: "open", Dir: dir, Seen: seen, Flag: tried})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("in a user namespace: %w", err), r.Close())
	}
	r.tun = resp.Networked
	return r, nil
}

func (r *remoteBackend) Layered() bool   { return true }
func (r *remoteBackend) Networked() bool { return r.tun }
func (r *remoteBackend) MaxLayers() int  { return namespaces.MaxLayers }

func (r *remoteBackend) Close() error {
	_, _, err := r.call(&request{Op: "close"})
	if errors.Is(err, backend.ErrStopped) || !r.agent.alive() {
		err = nil // it was never opened, or has ended with the agent
	}
	if output := r.agent.release(); output != "" {
		r.log.Error("the agent in the user namespace has failed", "output", output)
	}
	if rerr := os.Remove(filepath.Join(r.dir, "ns")); rerr != nil && !errors.Is(rerr, os.ErrNotExist) {
		err = errors.Join(err, rerr)
	}
	return err
}

// Forget makes the agent forget a sandbox after its files were removed.
func (r *remoteBackend) Forget(id string) {
	_, _, _ = r.call(&request{Op: "forget", Box: id}) // fails only if the agent has ended
}

// begin starts a call. The caller reads the responses and closes it.
func (r *remoteBackend) begin(req *request, files ...*os.File) (*net.UnixConn, error) {
	ours, theirs, err := socketPair()
	if err != nil {
		return nil, err
	}
	r.agent.mu.Lock()
	err = send(r.agent.conn, struct{}{}, theirs)
	r.agent.mu.Unlock()
	_ = theirs.Close()
	if err == nil {
		req.Host = r.dir
		err = send(ours, req, files...)
	}
	if err != nil {
		if errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET) {
			err = fmt.Errorf("the agent has gone: %w", err)
		}
		return nil, errors.Join(err, ours.Close())
	}
	return ours, nil
}

// readResponse reads a response.
func readResponse(call *net.UnixConn) (*response, []*os.File, error) {
	var resp response
	files, err := receive(call, &resp)
	if err != nil {
		return nil, nil, fmt.Errorf("the agent has gone: %w", err)
	}
	if err := resp.Failure.err(); err != nil {
		backend.CloseAll(files)
		return nil, nil, err
	}
	return &resp, files, nil
}

// call makes a call with one response.
func (r *remoteBackend) call(req *request, files ...*os.File) (*response, []*os.File, error) {
	call, err := r.begin(req, files...)
	if err != nil {
		return nil, nil, err
	}
	defer call.Close()
	return readResponse(call)
}

func (r *remoteBackend) NewMachine(id string, cfg backend.Config, dir string, layers []string) (backend.Machine, error) {
	m := &remoteMachine{backend: r, id: id, dir: dir, firewall: cfg.Firewall}
	_, _, err := r.call(&request{Op: "make", Box: id, Dir: dir, Layers: layers, Config: cfg})
	return m, err
}

func (r *remoteBackend) Flatten(chain []string, dir string) error {
	_, _, err := r.call(&request{Op: "flatten", Dir: dir, Layers: chain})
	return err
}

// remoteMachine is the machine of a sandbox in the agent. This process, which has the
// firewall, makes its connections to the outside. The agent sends it the network device and
// the listener of the sandbox.
type remoteMachine struct {
	backend  *remoteBackend
	id, dir  string
	firewall *firewall.Firewall

	mu  sync.Mutex
	nat *firewall.NAT // nil while the sandbox is stopped, and if it has the host's network
	// Bytes that earlier boots of the sandbox have transferred.
	in, out int64
}

func (m *remoteMachine) Do(req *request, files ...*os.File) (*response, []*os.File, error) {
	req.Box = m.id
	return m.backend.call(req, files...)
}

func (m *remoteMachine) Boot(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	_, files, err := m.Do(&request{Op: "boot"})
	if err != nil || len(files) == 0 {
		return err
	}
	uplink, err := namespaces.ReceiveWay(files)
	if err != nil {
		return errors.Join(err, m.Halt(nil))
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.nat = firewall.Connect(uplink.Device, uplink.Listener, m.firewall, m.backend.log)
	return nil
}

func (m *remoteMachine) Launch(cmd *exec.Cmd, spec *backend.Spec) (backend.Running, error) {
	send := &launchSpec{Path: spec.Path, Dir: spec.Dir, User: spec.User, Args: spec.Args, Env: spec.Env, TTY: spec.TTY != nil}
	var files []*os.File
	for i, std := range []any{cmd.Stdin, cmd.Stdout, cmd.Stderr} {
		if f, ok := std.(*os.File); ok && f != nil {
			send.Files[i] = true
			files = append(files, f)
		}
	}
	call, err := m.backend.begin(&request{Op: "launch", Box: m.id, Spec: send}, files...)
	if err != nil {
		return nil, err
	}
	resp, _, err := readResponse(call)
	if err != nil {
		return nil, errors.Join(err, call.Close())
	}
	return &remoteProcess{call: call, id: resp.Pid}, nil
}

// remoteProcess is a process in the agent.
type remoteProcess struct {
	call *net.UnixConn
	id   int
}

func (p *remoteProcess) Pid() int { return p.id }

func (p *remoteProcess) Wait() backend.Exit {
	defer p.call.Close()
	resp, _, err := readResponse(p.call)
	if err != nil {
		return backend.Exit{Code: 128 + int(syscall.SIGKILL)} // the process has ended with the agent
	}
	return resp.Exit
}

func (m *remoteMachine) OpenTerminal(size backend.Size, user string) (*backend.Terminal, error) {
	_, files, err := m.Do(&request{Op: "terminal", Size: size, Name: user})
	if err != nil {
		return nil, err
	}
	master, err := backend.Pollable(files[0])
	if err != nil {
		return nil, errors.Join(err, master.Close(), files[1].Close())
	}
	return &backend.Terminal{Master: master, Slave: files[1]}, nil
}

func (m *remoteMachine) ReadFile(name string) (io.ReadCloser, error) {
	_, files, err := m.Do(&request{Op: "read", Name: name})
	if err != nil {
		return nil, err
	}
	return files[0], nil
}

func (m *remoteMachine) Mkdir(name string, parents bool) error {
	_, _, err := m.Do(&request{Op: "mkdir", Name: name, Flag: parents})
	return err
}

func (m *remoteMachine) Extract(ctx context.Context, archive io.Reader, dir string) error {
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	copied := make(chan error, 1)
	go func() {
		_, err := io.Copy(w, archive)
		_ = w.Close()
		copied <- err
	}()
	_, _, err = m.Do(&request{Op: "extract", Name: dir}, r)
	_ = r.Close()
	if err == nil {
		return nil // closing the pipe ends the goroutine
	}
	select {
	case cerr := <-copied:
		if cerr != nil && !errors.Is(cerr, syscall.EPIPE) {
			return backend.ArchiveError(cerr)
		}
	case <-ctx.Done():
		return ctx.Err()
	default:
	}
	return err
}

func (m *remoteMachine) Dial(ctx context.Context, port int) (net.Conn, error) {
	req := &request{Op: "dial", Port: port}
	if deadline, ok := ctx.Deadline(); ok {
		req.Within = max(time.Until(deadline), time.Millisecond)
	}
	_, files, err := m.Do(req)
	if err != nil {
		return nil, err
	}
	defer backend.CloseAll(files)
	return net.FileConn(files[0])
}

func (m *remoteMachine) Disconnect() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.nat.Disconnect()
}

func (m *remoteMachine) Network() (in, out int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	in, out = m.nat.Transferred()
	return m.in + in, m.out + out
}

func (m *remoteMachine) Ended(int) {}

func (m *remoteMachine) Halt([]backend.Command) error {
	_, _, err := m.Do(&request{Op: "halt"})
	m.mu.Lock()
	defer m.mu.Unlock()
	in, out := m.nat.Transferred()
	m.in, m.out = m.in+in, m.out+out
	err = errors.Join(err, m.nat.Close())
	m.nat = nil
	return err
}

func (m *remoteMachine) Freeze() (string, int64, error) {
	upper := filepath.Join(m.dir, "u")
	size, err := backend.DiskUsage(upper)
	return upper, size, err
}
