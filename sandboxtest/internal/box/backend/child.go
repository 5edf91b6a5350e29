package backend

import (
	"os/exec"

	"github.com/go-vercel/sandbox/internal/inherited"
	"github.com/go-vercel/sandbox/sandboxtest/internal/guard"
)

// child is a process of our own.
type child struct {
	cmd   *exec.Cmd
	ended chan Exit
}

// StartChild starts cmd by start, and waits for it, on one OS thread that
// nothing else uses meanwhile. The kernel takes the thread for the parent: a
// program that asks for a signal when its parent dies (PR_SET_PDEATHSIG, as
// setpriv and bubblewrap do) would get it when that thread ends. The process
// inherits no open file and no handling of signals; the thread decides on the rest.
func StartChild(thread func(func()), cmd *exec.Cmd, start func() error) (Running, error) {
	c := child{cmd, make(chan Exit, 1)}
	started := make(chan error, 1)
	inherited.Close(cmd)
	go thread(func() {
		err := guard.Tried(func() error { return withUsualSignals(start) })
		started <- err
		if err != nil {
			return
		}
		_ = cmd.Wait() // the state says it all
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
