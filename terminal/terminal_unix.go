//go:build unix

package terminal

import (
	"context"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

var exitSignals = []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT}

// prepareTerminal puts the local terminal into raw mode.
func prepareTerminal(stdin, _ *os.File) (restore func() error, err error) { return makeRaw(stdin) }

// watchSize calls resize whenever the window's size has changed.
func watchSize(ctx context.Context, _ *Options, resize func()) {
	changed := make(chan os.Signal, 1)
	signal.Notify(changed, syscall.SIGWINCH)
	defer signal.Stop(changed)
	for {
		select {
		case <-changed:
			resize()
		case <-ctx.Done():
			return
		}
	}
}

// input reads a file whose reads block, such as a terminal. It can be stopped, because it
// waits for the file and a pipe at the same time.
type input struct {
	file         *os.File
	wake, closer *os.File // the ends of the pipe
	group        sync.WaitGroup
}

func newInput(f *os.File) (*input, error) {
	wake, closer, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	return &input{file: f, wake: wake, closer: closer}, nil
}

func (i *input) start(f func()) { i.group.Go(f) }

// stop makes Read return and waits for it.
func (i *input) stop() {
	i.closer.Close()
	i.group.Wait()
	i.wake.Close()
}

// Read reads from the file. It returns [io.EOF] after stop.
func (i *input) Read(p []byte) (int, error) {
	fd, wake := int(i.file.Fd()), int(i.wake.Fd())
	for {
		ready, stopped, err := waitReadable(fd, wake)
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return 0, err
		case stopped:
			return 0, io.EOF
		case ready:
			n, err := unix.Read(fd, p)
			switch {
			case err == unix.EINTR || err == unix.EAGAIN:
				continue
			case err != nil:
				return 0, err
			case n == 0:
				return 0, io.EOF
			}
			return n, nil
		}
	}
}
