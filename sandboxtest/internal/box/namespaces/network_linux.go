package namespaces

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"

	"github.com/go-vercel/sandbox/sandboxtest/internal/box/backend"
	"github.com/go-vercel/sandbox/sandboxtest/internal/firewall"
)

// network is a sandbox's network: loopback and, if it has an uplink, an interface that
// leads outside through a NAT.
type network struct {
	ns        backend.Handle
	shared    bool // it is the host's network
	hasUplink bool
	uplink    *uplink       // nil without an uplink, and once start or handOver has taken it
	nat       *firewall.NAT // owns the uplink's files; nil if another process does
}

// uplink has the files that a NAT needs. The interface disappears when Device is closed.
type uplink struct {
	Device   *os.File
	Listener net.Listener // inside the sandbox's network
}

func (u *uplink) close() error {
	if u == nil {
		return nil
	}
	return errors.Join(u.Device.Close(), u.Listener.Close())
}

// ReceiveWay makes an uplink of the files from handOver. It takes ownership of them.
func ReceiveWay(files []*os.File) (*uplink, error) {
	if len(files) != 2 {
		backend.CloseAll(files)
		return nil, fmt.Errorf("%d files for a network instead of 2", len(files))
	}
	listener, err := net.FileListener(files[1])
	err = errors.Join(err, files[1].Close())
	if err != nil {
		return nil, errors.Join(err, files[0].Close())
	}
	return &uplink{files[0], listener}, nil
}

const interfaceName = "eth0"

// haveTUN reports whether sandboxes can have their own networks that lead outside.
// Otherwise a sandbox has the host's network or none.
func haveTUN() bool {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	return unix.Close(fd) == nil
}

// newNetwork sets up the network namespace of the calling thread. If shared is set, it is
// the host's. If withUplink is set, the network gets an uplink.
func newNetwork(shared, withUplink bool) (*network, error) {
	ns, err := backend.OpenNamespace("net")
	if err != nil {
		return nil, err
	}
	n := &network{shared: shared}
	n.ns.Set(ns)
	if shared {
		return n, nil
	}
	if err := switchOn("lo"); err != nil {
		return nil, errors.Join(fmt.Errorf("network: %w", err), n.close())
	}
	if !withUplink {
		return n, nil
	}
	if err := n.openUplink(); err != nil {
		return nil, errors.Join(fmt.Errorf("network: %w", err), n.close())
	}
	return n, nil
}

// openUplink creates the interface that leads outside. The caller then calls start or
// handOver.
func (n *network) openUplink() error {
	device, err := openTUN(interfaceName)
	if err != nil {
		return err
	}
	if err := configureInterface(interfaceName); err != nil {
		return errors.Join(err, device.Close())
	}
	listener, err := net.Listen("tcp4", netip.AddrPortFrom(firewall.BoxAddr, 0).String())
	if err != nil {
		return errors.Join(err, device.Close())
	}
	n.uplink, n.hasUplink = &uplink{device, listener}, true
	return addDefaultRoute()
}

// start connects the sandbox to the outside from this process.
func (n *network) start(log *slog.Logger, f *firewall.Firewall) {
	if n.uplink != nil {
		n.nat, n.uplink = firewall.Connect(n.uplink.Device, n.uplink.Listener, f, log), nil
	}
}

// handOver returns the uplink for another process, as files. The caller sends and closes
// them.
func (n *network) handOver() ([]*os.File, error) {
	if n.uplink == nil {
		return nil, nil
	}
	listener, err := n.uplink.Listener.(*net.TCPListener).File()
	if err != nil {
		return nil, err
	}
	files := []*os.File{n.uplink.Device, listener}
	err = n.uplink.Listener.Close()
	n.uplink = nil
	if err != nil {
		backend.CloseAll(files)
		return nil, err
	}
	return files, nil
}

// openTUN creates an interface in the calling thread's network whose packets this process
// reads and writes. It disappears when the file is closed.
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

// withSocket calls f with a socket for requests about interfaces.
func withSocket(f func(sock int) error) error {
	sock, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	return errors.Join(f(sock), unix.Close(sock))
}

// configureInterface sets the address of an interface and brings it up.
func configureInterface(name string) error {
	err := withSocket(func(sock int) error {
		for _, set := range []struct {
			request uint
			value   func(*unix.Ifreq) error
		}{
			{unix.SIOCSIFADDR, func(r *unix.Ifreq) error { return r.SetInet4Addr(firewall.BoxAddr.AsSlice()) }},
			{unix.SIOCSIFNETMASK, func(r *unix.Ifreq) error { return r.SetInet4Addr([]byte{255, 255, 255, 0}) }},
			{unix.SIOCSIFMTU, func(r *unix.Ifreq) error { r.SetUint32(firewall.MTU); return nil }},
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
	return switchOn(name)
}

// switchOn brings up an interface of the calling thread's network.
func switchOn(name string) error {
	return withSocket(func(sock int) error {
		req, err := unix.NewIfreq(name)
		if err != nil {
			return err
		}
		if err := unix.IoctlIfreq(sock, unix.SIOCGIFFLAGS, req); err != nil {
			return fmt.Errorf("flags of %s: %w", name, err)
		}
		req.SetUint16(req.Uint16() | unix.IFF_UP)
		if err := unix.IoctlIfreq(sock, unix.SIOCSIFFLAGS, req); err != nil {
			return fmt.Errorf("set flags of %s: %w", name, err)
		}
		return nil
	})
}

// inside runs f on a thread in the sandbox's network. Sockets belong to the network in
// which they were created, wherever they are used later.
func (n *network) inside(f func() error) error {
	if n.shared {
		return f()
	}
	return backend.OnThread(func() error {
		if err := n.ns.Use(func(fd int) error { return unix.Setns(fd, unix.CLONE_NEWNET) }); err != nil {
			return fmt.Errorf("enter the sandbox's network: %w", err)
		}
		return f()
	})
}

func (n *network) dial(ctx context.Context, port int) (conn net.Conn, err error) {
	err = n.inside(func() error {
		if !n.shared && onLoopbackOnly(port) {
			return backend.ErrLoopbackOnly
		}
		if conn, err = backend.DialLoopback(ctx, port); err == nil || !n.hasUplink {
			return err
		}
		// A server may listen only on the interface's address.
		var d net.Dialer
		other, oerr := d.DialContext(ctx, "tcp4", netip.AddrPortFrom(firewall.BoxAddr, uint16(port)).String())
		if oerr == nil {
			conn, err = other, nil
		}
		return err
	})
	return conn, err
}

func (n *network) close() error { return errors.Join(n.ns.Close(), n.uplink.close(), n.nat.Close()) }
