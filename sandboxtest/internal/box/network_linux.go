package box

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"runtime"

	"golang.org/x/sys/unix"
)

// network is a box's own network.
type network struct {
	ns  int
	log *slog.Logger
}

// newNetwork sets up the network namespace of the calling thread.
func newNetwork(log *slog.Logger, deny bool) (*network, error) {
	ns, err := openNamespace("net")
	if err != nil {
		return nil, err
	}
	n := &network{ns: ns, log: log}
	if err := setUp("lo", true); err != nil {
		return nil, errors.Join(err, unix.Close(ns))
	}
	return n, nil
}

// setUp switches an interface of the calling thread's network on or off.
func setUp(name string, up bool) error {
	sock, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(sock)
	req, err := unix.NewIfreq(name)
	if err != nil {
		return err
	}
	if err := unix.IoctlIfreq(sock, unix.SIOCGIFFLAGS, req); err != nil {
		return fmt.Errorf("flags of %s: %w", name, err)
	}
	flags := req.Uint16() &^ unix.IFF_UP
	if up {
		flags |= unix.IFF_UP
	}
	req.SetUint16(flags)
	if err := unix.IoctlIfreq(sock, unix.SIOCSIFFLAGS, req); err != nil {
		return fmt.Errorf("set flags of %s: %w", name, err)
	}
	return nil
}

// inside runs f on a thread in the box's network. Sockets belong to the
// network they were made in, wherever they are used after.
func (n *network) inside(f func() error) error {
	runtime.LockOSThread()
	home, err := openNamespace("net")
	if err != nil {
		runtime.UnlockOSThread()
		return err
	}
	defer unix.Close(home)
	if err := unix.Setns(n.ns, unix.CLONE_NEWNET); err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("enter the box's network: %w", err)
	}
	err = f()
	if serr := unix.Setns(home, unix.CLONE_NEWNET); serr != nil {
		// Left locked, the thread ends with its goroutine and does no harm.
		return errors.Join(err, fmt.Errorf("leave the box's network: %w", serr))
	}
	runtime.UnlockOSThread()
	return err
}

func (n *network) dial(ctx context.Context, port int) (conn net.Conn, err error) {
	err = n.inside(func() error {
		conn, err = dialLoopback(ctx, port)
		return err
	})
	return conn, err
}

func (n *network) set(deny bool) error          { return nil }
func (n *network) transferred() (in, out int64) { return 0, 0 }
func (n *network) close() error                 { return unix.Close(n.ns) }
