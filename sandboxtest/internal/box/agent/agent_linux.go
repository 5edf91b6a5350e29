package agent

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/go-vercel/sandbox/sandboxtest/internal/box/backend"
	"github.com/go-vercel/sandbox/sandboxtest/internal/box/namespaces"
	"github.com/go-vercel/sandbox/sandboxtest/internal/guard"
)

// agentName is the name under which the program starts itself as the agent. It is not an
// environment variable, because anything could set that.
const agentName = "vercel-sandbox-agent"

// agentFD is the file descriptor of the agent's connection.
const agentFD = 3

func init() {
	if len(os.Args) == 1 && os.Args[0] == agentName {
		os.Exit(runAgent())
	}
}

// agent works as root of a user namespace for hosts of an ordinary user. Their process
// can't enter a user namespace itself, because it has threads. The agent ends with its
// connection.
type agent struct {
	mu    sync.Mutex
	hosts map[string]*agentHost // by their directories
}

// agentHost is the state of a host in the agent.
type agentHost struct {
	*namespaces.Backend

	mu       sync.Mutex
	machines map[string]*namespaces.Machine
}

func runAgent() int {
	conn, err := unixConn(os.NewFile(agentFD, "agent"))
	if err != nil {
		return 2
	}
	a := &agent{hosts: make(map[string]*agentHost)}
	for {
		files, err := receive(conn, &struct{}{})
		if err != nil {
			return 0 // the kernel ends the sandboxes with this process
		}
		for _, f := range files {
			if call, err := unixConn(f); err == nil {
				go a.serve(call)
			}
		}
	}
}

func (a *agent) serve(call *net.UnixConn) {
	defer call.Close()
	var req request
	files, err := receive(call, &req)
	defer backend.CloseAll(files)
	var (
		resp response
		back []*os.File
	)
	if err == nil {
		err = guard.Tried(func() (err error) {
			back, err = a.do(call, &req, files, &resp)
			return err
		})
	}
	if err != nil {
		resp = response{Failure: newFailure(err)}
	}
	_ = send(call, &resp, back...) // the host may be gone
	backend.CloseAll(back)
}

// do carries out a request. It returns files for the response.
func (a *agent) do(call *net.UnixConn, req *request, files []*os.File, resp *response) (back []*os.File, err error) {
	ctx := context.Background()
	if req.Within > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, req.Within)
		defer cancel()
	}
	if req.Op == "open" {
		return nil, a.open(req, resp)
	}
	a.mu.Lock()
	h := a.hosts[req.Host]
	a.mu.Unlock()
	if h == nil {
		return nil, backend.ErrStopped
	}
	switch req.Op {
	case "close":
		return nil, a.close(req.Host, h)
	case "make":
		if err := backend.CheckFileLimit(); err != nil {
			return nil, err
		}
		m, err := h.MakeMachine(req.Dir, req.Layers, req.Config)
		if err == nil {
			h.mu.Lock()
			h.machines[req.Box] = m
			h.mu.Unlock()
		}
		return nil, err
	case "flatten":
		return nil, h.Flatten(req.Layers, req.Dir)
	case "forget":
		h.mu.Lock()
		delete(h.machines, req.Box)
		h.mu.Unlock()
		return nil, nil
	}
	h.mu.Lock()
	m := h.machines[req.Box]
	h.mu.Unlock()
	if m == nil {
		return nil, backend.ErrStopped
	}
	return a.doOnMachine(ctx, m, call, req, files, resp)
}

func (a *agent) open(req *request, resp *response) error {
	host, err := namespaces.NewBackend(req.Dir, slog.New(slog.DiscardHandler), true, req.Seen, req.Flag)
	if err != nil {
		return err
	}
	resp.Networked = host.Networked()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.hosts[req.Host] = &agentHost{Backend: host, machines: make(map[string]*namespaces.Machine)}
	return nil
}

// close ends the remaining machines of a host.
func (a *agent) close(name string, h *agentHost) (err error) {
	a.mu.Lock()
	delete(a.hosts, name)
	a.mu.Unlock()
	h.mu.Lock()
	for _, m := range h.machines {
		err = errors.Join(err, m.Halt(nil))
	}
	h.mu.Unlock()
	return errors.Join(err, h.Backend.Close())
}

// doOnMachine carries out a request for a machine.
func (a *agent) doOnMachine(ctx context.Context, m *namespaces.Machine, call *net.UnixConn, req *request, files []*os.File, resp *response) (back []*os.File, err error) {
	switch req.Op {
	case "boot":
		if err := m.Boot(ctx); err != nil {
			return nil, err
		}
		if back, err = m.HandOver(); err != nil {
			err = errors.Join(err, m.Halt(nil))
		}
		return back, err
	case "launch":
		return nil, a.launch(call, m, req.Spec, files, resp)
	case "terminal":
		term, err := m.OpenTerminal(req.Size, req.Name)
		if err != nil {
			return nil, err
		}
		return []*os.File{term.Master, term.Slave}, nil
	case "read":
		file, err := m.ReadFile(req.Name)
		if err != nil {
			return nil, err
		}
		return []*os.File{file.(*os.File)}, nil
	case "mkdir":
		return nil, m.Mkdir(req.Name, req.Flag)
	case "extract":
		if len(files) != 1 {
			return nil, errors.New("no archive")
		}
		return nil, m.Extract(ctx, files[0], req.Name)
	case "dial":
		conn, err := m.Dial(ctx, req.Port)
		if err != nil {
			return nil, err
		}
		defer conn.Close()
		file, err := conn.(*net.TCPConn).File()
		if err != nil {
			return nil, err
		}
		return []*os.File{file}, nil
	case "halt":
		return nil, m.Halt(nil)
	}
	return nil, errors.New("unknown operation " + req.Op)
}

// launch responds twice: with the process, and when it has ended.
func (a *agent) launch(call *net.UnixConn, m *namespaces.Machine, spec *launchSpec, files []*os.File, resp *response) error {
	if spec == nil {
		return errors.New("no command")
	}
	cmd := &exec.Cmd{Args: append([]string{spec.Path}, spec.Args...)}
	for i, set := range []func(*os.File){
		func(f *os.File) { cmd.Stdin = f }, func(f *os.File) { cmd.Stdout = f }, func(f *os.File) { cmd.Stderr = f },
	} {
		if !spec.Files[i] {
			continue
		}
		if len(files) == 0 {
			return errors.New("a standard file is missing")
		}
		// A program does not expect its standard files to be non-blocking.
		fd, err := backend.Descriptor(files[0])
		if err == nil {
			err = unix.SetNonblock(fd, false)
		}
		if err != nil {
			return err
		}
		set(files[0])
		files = files[1:]
	}
	whole := backend.Spec{Path: spec.Path, Dir: spec.Dir, User: spec.User, Args: spec.Args, Env: spec.Env}
	if spec.TTY {
		whole.TTY = &backend.Size{}
	}
	proc, err := m.Launch(cmd, &whole)
	// Only the process may keep the standard files open.
	for _, f := range []any{cmd.Stdin, cmd.Stdout, cmd.Stderr} {
		if f, ok := f.(io.Closer); ok {
			_ = f.Close()
		}
	}
	if err != nil {
		return err
	}
	_ = send(call, &response{Pid: proc.Pid()})
	resp.Exit = proc.Wait()
	return nil
}
