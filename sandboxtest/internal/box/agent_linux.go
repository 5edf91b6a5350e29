package box

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

	"github.com/go-vercel/sandbox/sandboxtest/internal/guard"
)

// agentName is the name under which the program starts itself again. An
// environment variable would not do: anything could set it.
const agentName = "vercel-sandbox-agent"

// agentFD is where the agent finds its connection.
const agentFD = 3

func init() {
	if len(os.Args) == 1 && os.Args[0] == agentName {
		os.Exit(runAgent())
	}
}

// agent works as root of a user namespace for a host without rights, which can't
// enter one because it has threads. It ends with its connection.
type agent struct {
	mu    sync.Mutex
	hosts map[string]*agentHost // by their directories
}

// agentHost is what the agent has of a host.
type agentHost struct {
	*namespaceBackend

	mu       sync.Mutex
	machines map[string]*namespaceMachine
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
			return 0 // the kernel ends the boxes with this process
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
	defer closeAll(files)
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
	closeAll(back)
}

// do carries out a request.
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
		return nil, ErrStopped
	}
	switch req.Op {
	case "close":
		return nil, a.close(req.Host, h)
	case "make":
		if err := room(); err != nil {
			return nil, err
		}
		m, err := h.machine(req.Dir, req.Layers, req.Config)
		if err == nil {
			h.mu.Lock()
			h.machines[req.Box] = m
			h.mu.Unlock()
		}
		return nil, err
	case "flatten":
		return nil, h.flatten(req.Layers, req.Dir)
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
		return nil, ErrStopped
	}
	return a.doIn(ctx, m, call, req, files, resp)
}

func (a *agent) open(req *request, resp *response) error {
	backend, err := newLocalBackend(req.Dir, slog.New(slog.DiscardHandler), true, req.Seen, req.Flag)
	if err != nil {
		return err
	}
	resp.Networked = backend.networked()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.hosts[req.Host] = &agentHost{namespaceBackend: backend, machines: make(map[string]*namespaceMachine)}
	return nil
}

// close ends what is left of a host.
func (a *agent) close(name string, h *agentHost) (err error) {
	a.mu.Lock()
	delete(a.hosts, name)
	a.mu.Unlock()
	h.mu.Lock()
	for _, m := range h.machines {
		err = errors.Join(err, m.halt(nil))
	}
	h.mu.Unlock()
	return errors.Join(err, h.namespaceBackend.close())
}

// doIn carries out a request for a machine.
func (a *agent) doIn(ctx context.Context, m *namespaceMachine, call *net.UnixConn, req *request, files []*os.File, resp *response) (back []*os.File, err error) {
	switch req.Op {
	case "boot":
		if err := m.boot(ctx); err != nil {
			return nil, err
		}
		if back, err = m.handOver(); err != nil {
			err = errors.Join(err, m.halt(nil))
		}
		return back, err
	case "launch":
		return nil, a.launch(call, m, req.Spec, files, resp)
	case "terminal":
		term, err := m.openTerminal(req.Size, req.Name)
		if err != nil {
			return nil, err
		}
		return []*os.File{term.master, term.slave}, nil
	case "read":
		file, size, err := m.readFile(req.Name)
		if err != nil {
			return nil, err
		}
		resp.Size = size
		return []*os.File{file.(*os.File)}, nil
	case "mkdir":
		return nil, m.mkdir(req.Name, req.Flag)
	case "extract":
		if len(files) != 1 {
			return nil, errors.New("no archive")
		}
		return nil, m.extract(ctx, files[0], req.Name, req.Max)
	case "dial":
		conn, err := m.dial(ctx, req.Port)
		if err != nil {
			return nil, err
		}
		defer conn.Close()
		file, err := conn.(*net.TCPConn).File()
		if err != nil {
			return nil, err
		}
		return []*os.File{file}, nil
	case "network":
		return nil, m.setNetwork(req.Flag)
	case "halt":
		return nil, m.halt(nil)
	}
	return nil, errors.New("unknown operation " + req.Op)
}

// launch responds twice: with the process, and when it has ended.
func (a *agent) launch(call *net.UnixConn, m *namespaceMachine, spec *launchSpec, files []*os.File, resp *response) error {
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
		fd, err := descriptor(files[0])
		if err == nil {
			err = unix.SetNonblock(fd, false)
		}
		if err != nil {
			return err
		}
		set(files[0])
		files = files[1:]
	}
	whole := Spec{Path: spec.Path, Dir: spec.Dir, User: spec.User, Args: spec.Args, Env: spec.Env}
	if spec.TTY {
		whole.TTY = &Size{}
	}
	proc, err := m.launch(cmd, &whole)
	// Only the process may hold them open.
	for _, f := range []any{cmd.Stdin, cmd.Stdout, cmd.Stderr} {
		if f, ok := f.(io.Closer); ok {
			_ = f.Close()
		}
	}
	if err != nil {
		return err
	}
	_ = send(call, &response{Pid: proc.pid()})
	resp.Exit = proc.wait()
	return nil
}
