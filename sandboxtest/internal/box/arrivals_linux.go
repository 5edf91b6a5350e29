package box

import (
	"errors"
	"os"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/go-vercel/sandbox/sandboxtest/internal/box/backend"
)

// arrivals determines which of several pipes received data first. Reading them in turn,
// or in a goroutine each, would not preserve the order.
type arrivals struct {
	poll *os.File // an epoll instance, on which the runtime waits
	raw  syscall.RawConn
	outs []*output
}

// newArrivals watches the pipes of outputs. Call it before anything is written to
// them.
func newArrivals(outs []*output) (*arrivals, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil { // so that Go's runtime can wait on it
		return nil, errors.Join(err, unix.Close(fd))
	}
	a := &arrivals{poll: os.NewFile(uintptr(fd), "output"), outs: outs}
	for i, o := range outs {
		pipe, err := backend.Descriptor(o.r)
		if err == nil {
			// With EPOLLET, the events are in the order in which data arrived in empty
			// pipes.
			err = unix.EpollCtl(fd, unix.EPOLL_CTL_ADD, pipe, &unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLET, Fd: int32(i)})
		}
		if err != nil {
			return nil, errors.Join(err, a.poll.Close())
		}
	}
	a.raw, err = a.poll.SyscallConn()
	if err == nil {
		err = a.poll.SetReadDeadline(time.Time{}) // not every kernel lets the runtime wait on it
	}
	if err != nil {
		return nil, errors.Join(err, a.poll.Close())
	}
	return a, nil
}

func (a *arrivals) close() { _ = a.poll.Close() }

// processExited does for all outputs what output.processExited does for one.
func (a *arrivals) processExited() {
	for _, o := range a.outs {
		o.exited.Store(true)
	}
	_ = a.poll.SetReadDeadline(time.Now().Add(a.outs[0].grace))
}

// copy copies the data of all pipes, as output.copy does, in the order of arrival.
func (a *arrivals) copy() {
	buf := buffers.Get().(*[32 << 10]byte)
	defer buffers.Put(buf)
	left := make([]int, len(a.outs))   // bytes read since the exit
	ended := make([]bool, len(a.outs)) // no writer remains
	done := make([]bool, len(a.outs))
	events := make([]unix.EpollEvent, len(a.outs))
	var ready []int32 // the pipes with something to read, in the order of arrival
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
			// Only a look without a deadline proves that the pipes are empty; see output.copy.
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
		case got == len(buf) || ended[i]: // there may be more, without another event
			ready = append(ready, i)
		}
		if exited {
			left[i] += got
		}
	}
}

// look returns the pipes in which data has arrived.
func (a *arrivals) look(events []unix.EpollEvent) (n int, err error) {
	cerr := a.raw.Control(func(fd uintptr) { n, err = epollNow(fd, events) })
	return n, errors.Join(cerr, err)
}

// epollNow returns events without waiting.
func epollNow(fd uintptr, events []unix.EpollEvent) (n int, err error) {
	for {
		if n, err = unix.EpollWait(int(fd), events, 0); err != unix.EINTR {
			return max(n, 0), err
		}
	}
}

// wait returns the pipes in which data has arrived, in order. With block it waits until
// there is one.
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

// read copies the content of a pipe once.
func (a *arrivals) read(i int32, buf []byte) (n int, err error) {
	n, err = backend.ReadAvailable(a.outs[i].r, buf)
	if err == nil {
		a.outs[i].write(buf[:n])
	}
	return n, err
}
