package box

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// network is a box's network: loopback, and an interface that leads outside
// through a nat if there is one.
type network struct {
	ns     handle
	shared bool // it's the host's
	nat    *nat
}

const interfaceName = "eth0"

// haveTUN reports whether boxes can have networks of their own that lead outside.
// Otherwise a box has the host's network or none.
func haveTUN() bool {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	return unix.Close(fd) == nil
}

// newNetwork sets up the network namespace of the calling thread, which is the
// host's when shared is set.
func newNetwork(log *slog.Logger, gate Gate, deny, shared, tun bool) (*network, error) {
	ns, err := openNamespace("net")
	if err != nil {
		return nil, err
	}
	n := &network{shared: shared}
	n.ns.set(ns)
	if shared {
		return n, nil
	}
	if err := setUp("lo", true); err != nil {
		return nil, errors.Join(fmt.Errorf("network: %w", err), n.close())
	}
	if !tun {
		return n, nil
	}
	if err := n.leadOutside(log, gate, deny); err != nil {
		return nil, errors.Join(fmt.Errorf("network: %w", err), n.close())
	}
	return n, nil
}

// leadOutside makes the interface that leads outside, switched off for deny.
func (n *network) leadOutside(log *slog.Logger, gate Gate, deny bool) error {
	device, err := openTUN(interfaceName)
	if err != nil {
		return err
	}
	if err := configure(interfaceName); err != nil {
		return errors.Join(err, device.Close())
	}
	listener, err := net.Listen("tcp4", netip.AddrPortFrom(boxAddr, 0).String())
	if err != nil {
		return errors.Join(err, device.Close())
	}
	n.nat = newNAT(device, listener, hostResolver, gate, log)
	if deny {
		return setUp(interfaceName, false)
	}
	return addDefaultRoute()
}

// openTUN makes an interface in the calling thread's network whose packets are
// read and written here. It goes when the file is closed.
func openTUN(name string) (*os.File, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open /dev/net/tun: %w", err)
	}
	req, err := unix.NewIfreq(name)
	if err == nil {
		req.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
		err = unix.IoctlIfreq(fd, unix.TUNSETIFF, req)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("make interface %s: %w", name, err), unix.Close(fd))
	}
	return os.NewFile(uintptr(fd), "/dev/net/tun"), nil
}

// withSocket gives f a socket for requests about interfaces.
func withSocket(f func(sock int) error) error {
	sock, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	return errors.Join(f(sock), unix.Close(sock))
}

// configure gives an interface its address and switches it on.
func configure(name string) error {
	err := withSocket(func(sock int) error {
		for _, set := range []struct {
			request uint
			value   func(*unix.Ifreq) error
		}{
			{unix.SIOCSIFADDR, func(r *unix.Ifreq) error { return r.SetInet4Addr(boxAddr.AsSlice()) }},
			{unix.SIOCSIFNETMASK, func(r *unix.Ifreq) error { return r.SetInet4Addr([]byte{255, 255, 255, 0}) }},
			{unix.SIOCSIFMTU, func(r *unix.Ifreq) error { r.SetUint32(mtu); return nil }},
		} {
			req, err := unix.NewIfreq(name)
			if err == nil {
				err = set.value(req)
			}
			if err == nil {
				err = unix.IoctlIfreq(sock, set.request, req)
			}
			if err != nil {
				return fmt.Errorf("configure %s: %w", name, err)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return setUp(name, true)
}

// setUp switches an interface of the calling thread's network on or off.
func setUp(name string, up bool) error {
	return withSocket(func(sock int) error {
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
	})
}

// hostResolver returns the first name server of the host, read each time since
// the host may move between networks.
func hostResolver() string {
	data, _ := os.ReadFile("/etc/resolv.conf")
	for line := range strings.Lines(string(data)) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == "nameserver" {
			return net.JoinHostPort(fields[1], "53")
		}
	}
	return "127.0.0.1:53"
}

// inside runs f on a thread in the box's network. Sockets belong to the
// network they were made in, wherever they are used after.
func (n *network) inside(f func() error) error {
	if n.shared {
		return f()
	}
	return onThread(func() error {
		if err := n.ns.use(func(fd int) error { return unix.Setns(fd, unix.CLONE_NEWNET) }); err != nil {
			return fmt.Errorf("enter the box's network: %w", err)
		}
		return f()
	})
}

func (n *network) dial(ctx context.Context, port int) (conn net.Conn, err error) {
	err = n.inside(func() error {
		if !n.shared && onLoopbackOnly(port) {
			return ErrLoopbackOnly
		}
		if conn, err = dialLoopback(ctx, port); err == nil || n.nat == nil {
			return err
		}
		// A server may listen on the interface's address only.
		var d net.Dialer
		other, oerr := d.DialContext(ctx, "tcp4", netip.AddrPortFrom(boxAddr, uint16(port)).String())
		if oerr == nil {
			conn, err = other, nil
		}
		return err
	})
	return conn, err
}

// set cuts the network off or connects it. Connections that are open when it
// is cut off are reset.
func (n *network) set(deny bool) error {
	if n.nat == nil {
		return fmt.Errorf("%w while the box runs: there is no /dev/net/tun", ErrUnsupported)
	}
	return n.inside(func() error {
		if deny {
			n.nat.reset()
			err := setUp(interfaceName, false)
			n.nat.disconnect() // connections opened meanwhile
			return err
		}
		if err := setUp(interfaceName, true); err != nil {
			return err
		}
		return addDefaultRoute()
	})
}

// disconnect breaks the connections that are open.
func (n *network) disconnect() {
	if n.nat != nil {
		n.nat.disconnect()
	}
}

func (n *network) transferred() (in, out int64) {
	if n.nat == nil {
		return 0, 0
	}
	return n.nat.in.Load(), n.nat.out.Load()
}

func (n *network) close() error {
	err := n.ns.close()
	if n.nat != nil {
		err = errors.Join(err, n.nat.close())
	}
	return err
}
