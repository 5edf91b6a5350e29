package box

import (
	"errors"
	"os"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// arrivals tells in which of several pipes something has come first. Nobody
// else knows: whoever waits for each of them in turn, or in goroutines of their
// own, sees them in any order.
type arrivals struct {
	poll *os.File // of the kernel's kind, in which the runtime waits
	raw  syscall.RawConn
	outs []*output
}

// newArrivals watches the pipes of outputs, before anything comes in them.
func newArrivals(outs []*output) (*arrivals, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil { // for the runtime to wait in it
		return nil, errors.Join(err, unix.Close(fd))
	}
	a := &arrivals{poll: os.NewFile(uintptr(fd), "output"), outs: outs}
	for i, o := range outs {
		pipe, err := descriptor(o.r)
		if err == nil {
			// One event for all that has come since the pipe was empty.
			err = unix.EpollCtl(fd, unix.EPOLL_CTL_ADD, pipe, &unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLET, Fd: int32(i)})
		}
		if err != nil {
			return nil, errors.Join(err, a.poll.Close())
		}
	}
	a.raw, err = a.poll.SyscallConn()
	if err == nil {
		err = a.poll.SetReadDeadline(time.Time{}) // which not every kernel lets the runtime do
	}
	if err != nil {
		return nil, errors.Join(err, a.poll.Close())
	}
	return a, nil
}

func (a *arrivals) close() { _ = a.poll.Close() }

// exit is as output.exit, for all of them.
func (a *arrivals) exit() {
	for _, o := range a.outs {
		o.exited.Store(true)
	}
	_ = a.poll.SetReadDeadline(time.Now().Add(a.outs[0].grace))
}

// copy copies what comes out of all the pipes, as output.copy does, in the order
// in which it has come.
func (a *arrivals) copy() {
	buf := buffers.Get().(*[32 << 10]byte)
	defer buffers.Put(buf)
	left := make([]int, len(a.outs))   // bytes read since the exit
	ended := make([]bool, len(a.outs)) // nobody writes any more
	done := make([]bool, len(a.outs))
	events := make([]unix.EpollEvent, len(a.outs))
	var ready []int32 // where there is something to read, the first first
	for slices.Contains(done, false) {
		exited := a.outs[0].exited.Load()
		if exited {
			_ = a.poll.SetReadDeadline(time.Now().Add(a.outs[0].grace))
		}
		n, err := a.wait(events, len(ready) == 0)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			if !exited {
				continue
			}
			// As in output.copy.
			if n, err = a.look(events); n == 0 {
				return
			}
		}
		if err != nil {
			return
		}
		for _, e := range events[:n] {
			if e.Events&(unix.EPOLLHUP|unix.EPOLLERR) != 0 {
				ended[e.Fd] = true
			}
			if !done[e.Fd] && !slices.Contains(ready, e.Fd) {
				ready = append(ready, e.Fd)
			}
		}
		if len(ready) == 0 {
			continue
		}
		i := ready[0]
		ready = ready[1:]
		got, err := a.read(i, buf[:])
		switch {
		case err == unix.EAGAIN:
		case err != nil, got == 0, exited && left[i]+got > maxAfterExit:
			done[i] = true
		case got == len(buf) || ended[i]: // there may be more, of which no event tells
			ready = append(ready, i)
		}
		if exited {
			left[i] += got
		}
	}
}

// look tells where something has come by now.
func (a *arrivals) look(events []unix.EpollEvent) (n int, err error) {
	cerr := a.raw.Control(func(fd uintptr) { n, err = epollNow(fd, events) })
	return n, errors.Join(cerr, err)
}

// epollNow returns events without waiting for any.
func epollNow(fd uintptr, events []unix.EpollEvent) (n int, err error) {
	for {
		if n, err = unix.EpollWait(int(fd), events, 0); err != unix.EINTR {
			return max(n, 0), err
		}
	}
}

// wait tells where something has come, the first first; with block it waits for
// it.
func (a *arrivals) wait(events []unix.EpollEvent, block bool) (n int, err error) {
	look := func(fd uintptr) bool {
		n, err = epollNow(fd, events)
		return n != 0 || err != nil || !block
	}
	if rerr := a.raw.Read(look); rerr != nil && (block || !errors.Is(rerr, os.ErrDeadlineExceeded)) {
		return 0, rerr
	}
	return n, err
}

// read copies once what is in a pipe.
func (a *arrivals) read(i int32, buf []byte) (n int, err error) {
	n, err = readNow(a.outs[i].r, buf)
	if err == nil {
		_, _ = a.outs[i].w.Write(buf[:n])
	}
	return n, err
}
