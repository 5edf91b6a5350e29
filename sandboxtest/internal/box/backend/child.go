package backend

import (
	"os/exec"

	"github.com/go-vercel/sandbox/internal/inherited"
	"github.com/go-vercel/sandbox/sandboxtest/internal/guard"
)

// child is a child process of this process.
type child struct {
	cmd   *exec.Cmd
	ended chan Exit
}

// StartChild starts cmd by calling start, and waits for it, on one OS thread that is not
// used for anything else in the meantime. To the kernel this thread is the parent: a
// program that requests a signal when its parent dies (PR_SET_PDEATHSIG, as setpriv and
// bubblewrap do) would receive it at the end of the thread. The process inherits no open
// file and no signal handling. It inherits everything else from the thread.
func StartChild(thread func(func()), cmd *exec.Cmd, start func() error) (Running, error) {
	c := child{cmd, make(chan Exit, 1)}
	started := make(chan error, 1)
	inherited.Close(cmd)
	go thread(func() {
		err := guard.Tried(func() error { return withDefaultSignals(start) })
		started <- err
		if err != nil {
			return
		}
		_ = cmd.Wait() // ProcessState has the result
		state := cmd.ProcessState
		c.ended <- Exit{exitCode(state), state.UserTime() + state.SystemTime()}
	})
	if err := <-started; err != nil {
		return nil, err
	}
	return c, nil
}

func (c child) Pid() int { return c.cmd.Process.Pid }

func (c child) Wait() Exit { return <-c.ended }
