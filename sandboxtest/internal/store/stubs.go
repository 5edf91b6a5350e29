package store

import (
	"context"
	"io"
	"os"
	"sync"

	"github.com/go-vercel/sandbox/sandboxtest/internal/box"
)

// Stub replaces a program. It follows the contract of sandboxtest.CommandHandler.
type Stub func(ctx context.Context, inv *Invocation) int

// Invocation is a command that a Stub replaces.
type Invocation struct {
	Sandbox, Session string
	Name             string
	Args             []string
	Cwd              string
	Env              map[string]string
	Sudo             bool
	Stdin            io.Reader
	Stdout, Stderr   io.Writer
	Machine          *box.Box
}

// stubRun is a runner that calls a stub.
type stubRun struct {
	cancel context.CancelFunc
	done   chan struct{}

	mu     sync.Mutex
	signal int
	exited bool
	code   int
}

func startStub(h Stub, inv *Invocation) *stubRun {
	ctx, cancel := context.WithCancel(context.Background())
	r := &stubRun{cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(r.done)
		defer cancel()
		code := h(ctx, inv)
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.exited, r.code = true, code&0xff; r.signal != 0 {
			r.code = 128 + r.signal
		}
	}()
	return r
}

// The signals have their Linux numbers on all systems.
const (
	SigKill = 9
	sigCont = 18
	sigStop = 19
)

func (r *stubRun) Signal(n int) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.exited {
		return os.ErrProcessDone
	}
	if n != sigCont && n != sigStop && r.signal == 0 {
		r.signal = n
		r.cancel()
	}
	return nil
}

// SignalGroup is Signal: a stub has no children.
func (r *stubRun) SignalGroup(n int) error { return r.Signal(n) }

func (r *stubRun) Wait() int {
	<-r.done
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.code
}

// haltStubs ends the stubs of the session.
func (sess *Session) haltStubs() {
	for _, cmd := range sess.Started() {
		cmd.mu.Lock()
		r, ok := cmd.proc.(*stubRun)
		cmd.mu.Unlock()
		if ok {
			_ = r.Signal(SigKill) // it may have ended by itself
		}
	}
}
